"""A command whose last arguments belong to a user's script."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

from offcut.errors import InputError


class ScriptCommand(TyperCommand):
    """A command that takes the arguments of a script after `--`.

    Other words before `--` are refused: they are options without their dashes, or arguments of the script that a later
    option of the command would change.
    """

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
                f"submit: '{before[0]}' is not an option, and arguments of the script must follow --.", next_step=step
            )
        return rest
