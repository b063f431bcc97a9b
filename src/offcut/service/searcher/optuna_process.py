"""What runs in the searcher's process: Optuna suggests parameters, and keeps a study that its dashboard shows.

A suggestion is made from the sweep's own results alone, with a sampler of its own seed. It is the same whatever became
of the process, the controller or the stored study before; so the stored study is for people, and a fault of the storage
does not touch the search.
"""

from __future__ import annotations

import math
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from offcut.errors import ServiceError
from offcut.model.search_space import (
    CategoricalParameter,
    FloatParameter,
    IntParameter,
    Parameter,
    ParameterValues,
    SearchSpace,
)
from offcut.search.random_numbers import random_for
from offcut.service.searcher.questions import KnownTrial, StudyQuestion

#: The attributes of a stored study and its trials by which they are found again.
_SPACE = "offcut_space"
_NUMBER = "offcut_trial"


def warm() -> None:
    """Import Optuna, which takes a moment, and let it print warnings only."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def suggest(question: StudyQuestion, number: int) -> ParameterValues:
    """Return Optuna's parameters for trial `number`: the same for the same question."""
    sampler = _sampler(question.sampler, random_for(question.seed, "optuna", number).randrange(2**31))
    study = optuna.create_study(direction=question.direction, sampler=sampler)
    study.add_trials([_frozen(question.space, known) for known in question.trials if known.outcome != "running"])
    trial = study.ask()
    values: ParameterValues = {}
    for parameter in question.space.parameters:
        if question.space.is_active(parameter, values):
            values[parameter.name] = _ask(trial, parameter)
    return values


def _sampler(name: str, seed: int) -> optuna.samplers.BaseSampler:
    samplers: dict[str, Any] = {
        "tpe": optuna.samplers.TPESampler,
        "random": optuna.samplers.RandomSampler,
        "gp": optuna.samplers.GPSampler,
        "cmaes": optuna.samplers.CmaEsSampler,
        "qmc": optuna.samplers.QMCSampler,
    }
    sampler: optuna.samplers.BaseSampler = samplers[name](seed=seed)
    return sampler


def _ask(trial: optuna.Trial, parameter: Parameter) -> Any:
    match parameter:
        case CategoricalParameter():
            return trial.suggest_categorical(parameter.name, parameter.choices)
        case FloatParameter():
            return trial.suggest_float(parameter.name, parameter.low, parameter.high, log=parameter.log)
        case IntParameter():
            return trial.suggest_int(
                parameter.name, parameter.low, _last(parameter), log=parameter.log, step=parameter.step
            )


def _distribution(parameter: Parameter) -> BaseDistribution:
    match parameter:
        case CategoricalParameter():
            return CategoricalDistribution(parameter.choices)
        case FloatParameter():
            return FloatDistribution(parameter.low, parameter.high, log=parameter.log)
        case IntParameter():
            return IntDistribution(parameter.low, _last(parameter), log=parameter.log, step=parameter.step)


def _last(parameter: IntParameter) -> int:
    """Return the largest value that the parameter has; Optuna wants the range to be a multiple of the step."""
    return parameter.high - (parameter.high - parameter.low) % parameter.step


def _frozen(space: SearchSpace, known: KnownTrial, *, running: bool = False) -> FrozenTrial:
    """Return the trial as Optuna stores it; `running`: as one that has no outcome yet."""
    values = [(_step(budget), value) for budget, value in known.results if not math.isnan(value)]
    state, value = (TrialState.RUNNING, None) if running else _state(known)
    return create_trial(
        state=state,
        value=value,
        params=dict(known.parameters),
        distributions={each.name: _distribution(each) for each in space.parameters if each.name in known.parameters},
        intermediate_values=dict(values),
        user_attrs={_NUMBER: known.number},
    )


def _state(known: KnownTrial) -> tuple[TrialState, float | None]:
    """Return the state of a trial in Optuna, with its value. A value that is not a number is a failure there."""
    last = known.results[-1][1] if known.results else math.nan
    if known.outcome == "complete" and not math.isnan(last):
        return TrialState.COMPLETE, last
    if known.outcome == "pruned":
        return TrialState.PRUNED, None
    return TrialState.FAIL, None


def _step(budget: float) -> int:
    """Return the budget as a step of Optuna, which is an integer."""
    return round(budget)


def store(question: StudyQuestion, url: str) -> None:
    """Bring the stored study up to date, for `optuna-dashboard` and Optuna's plots.

    Raises:
        ServiceError: the storage cannot be written, or has a study of this name with another search space.
    """
    try:
        study = optuna.create_study(
            storage=url, study_name=question.study, direction=question.direction, load_if_exists=True
        )
        _check_space(study, question)
        trials = study.get_trials(deepcopy=False)
        stored = {trial.user_attrs[_NUMBER]: trial for trial in trials if _NUMBER in trial.user_attrs}
        for known in question.trials:
            _store_trial(study, question.space, known, stored.get(known.number))
    except ServiceError:
        raise
    except Exception as error:  # of SQLAlchemy, of Optuna, of the file system
        text = str(error).strip().splitlines() or [type(error).__name__]
        raise ServiceError(f"The study cannot be stored in {url}: {text[0]}.") from None


def _check_space(study: optuna.Study, question: StudyQuestion) -> None:
    described = {
        each.name: optuna.distributions.distribution_to_json(_distribution(each)) for each in question.space.parameters
    }
    found = study.user_attrs.get(_SPACE)
    if found is None and not study.get_trials(deepcopy=False):
        study.set_user_attr(_SPACE, described)
    elif found != described:
        raise ServiceError(f"A study called {question.study} exists with another search space: it is left alone.")


def _store_trial(study: optuna.Study, space: SearchSpace, known: KnownTrial, stored: FrozenTrial | None) -> None:
    if stored is None:
        study.add_trial(_frozen(space, known, running=not known.final))
        return
    if stored.state.is_finished():
        return
    trial = optuna.Trial(study, stored._trial_id)
    for budget, value in known.results:
        if _step(budget) not in stored.intermediate_values and not math.isnan(value):
            trial.report(value, _step(budget))
    if known.final:
        state, last = _state(known)
        study.tell(trial, last, state=state)
