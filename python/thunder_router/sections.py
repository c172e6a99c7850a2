"""What every section of the settings is made of."""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

__all__ = ["Fraction", "Pattern", "Seconds", "Section"]


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return pattern


Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Pattern = Annotated[str, AfterValidator(_compiles)]


class Section(BaseModel):
    """A frozen table; an unknown name in it is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
