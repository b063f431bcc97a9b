"""A command whose last words belong to somebody's script."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

from offcut.errors import InputError


class ScriptCommand(TyperCommand):
    """A script's own arguments come after `--`; words that stand before it are refused, for they are options of ours
    that lack their dashes, or arguments of the script that a later option of ours would swallow."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        after = args[args.index("--") + 1 :] if "--" in args else []
        options = {word.lstrip("-"): word for parameter in self.params for word in parameter.opts}
        rest: list[str] = super().parse_args(ctx, list(args))
        given = list(ctx.params.get("arguments") or ())
        before = given[: max(0, len(given) - len(after))]
        if before:
            option = options.get(before[0], "")
            if option.startswith("--"):
                step = f"If you mean the option, write {option}. The script's own arguments come after --."
            else:
                step = f"Write: offcut submit {ctx.params['what']} ... -- {' '.join([*before, *given[len(before) :]])}"
            raise InputError(
                f"submit: '{before[0]}' is no option, and no argument of the script without --.", next_step=step
            )
        return rest
