"""The YAML forms of a suite: ``suite.yaml`` and a file for each entry, checked strictly."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from uncia.forms import Form, Name
from uncia.units import Duration, Rate

Number = int | float


class Conclusion(Form):
    """What a paper concludes from several of its experiments."""

    paper: str = Field(description="What it says")
    place: str = Field(description="Section")
    claims: list[str] = Field(
        default_factory=list,
        description="Those that it is judged by, ENTRY.NAME or patterns such as tc1.i-*",
    )
    unavailable: str | None = Field(None, description="Why no claim is about it")

    @model_validator(mode="after")
    def _judged(self) -> Self:
        if bool(self.claims) == (self.unavailable is not None):
            raise ValueError("it is judged by claims, or unavailable says why there are none")
        return self


class Suite(Form):
    """``suite.yaml``: what the experiments of a folder reproduce."""

    title: str = Field(description="Such as the name of the paper's part")
    citation: str = Field(description="Authors, title, where and when")
    url: str | None = Field(None, description="Where it is found")
    description: str = Field(description="For a person")
    conclusions: dict[str, Conclusion] = Field(
        default_factory=dict, description="Of the paper, by their names in it"
    )
    called: str = Field("Conclusions", description="What the paper calls them")


class Quick(Form):
    """What is left of an experiment file with ``--quick``."""

    only: list[str] = Field(
        default_factory=list, description="Names and patterns of experiments; all if left out"
    )
    share: float = Field(
        1.0, gt=0, le=1, description="Of durations, bursts and requests in closed loops"
    )
    warmup: float = Field(1.0, gt=0, le=1, description="The same of warm-ups")
    whole: list[str] = Field(
        default_factory=list, description="Names and patterns of experiments that stay as they are"
    )


class Pilot(Form):
    """An earlier run of the entry from which a timeout is taken: between a warm and a cold chain.

    It is a whole number of seconds, as platforms have them.
    """

    run: Name = Field(description="An earlier run of the entry")
    cold: Name = Field(description="Its experiment of chains from cold")
    warm: Name = Field(description="Its experiment of warm chains")
    functions: list[Name] = Field(
        min_length=1, description="Functions of the file that are given the timeout"
    )


class Capacity(Form):
    """Whose capacity is searched before a run, to which the file's rates are scaled."""

    experiment: Name = Field(description="Of the file: what it sends is searched for the capacity")
    at: Rate = Field(description="The capacity that the file's rates are of, such as 100/s")
    functions: list[Name] = Field(
        default_factory=list, description="Whose rates are scaled; all if left out"
    )


class Fit(Form):
    """A power law through subjects: y grows as x to its exponent."""

    subjects: list[str] = Field(min_length=2, description="One for each point")
    x: str = Field(description="An expression with * for the subject")
    y: str = Field(description="An expression with * for the subject")

    @model_validator(mode="after")
    def _over_subjects(self) -> Self:
        for key, text in (("x", self.x), ("y", self.y)):
            if "*" not in text:
                raise ValueError(f"{key} has no * for the subject, such as '*.execution_mean'")
        return self

    def points(self) -> list[tuple[str, str]]:
        """The expressions for x and y of each point."""
        return [(self.x.replace("*", it), self.y.replace("*", it)) for it in self.subjects]


class EntryRun(Form):
    """An experiment file that an entry carries out."""

    file: str = Field(
        description="Below the folder experiments that ships with uncia; may be a simulation"
    )
    quick: Quick = Field(default_factory=Quick)
    listener: Name | None = Field(
        None,
        description="A function of the file that is given the address of a listener outside of its"
        " instances, in the variable UNCIA_LISTENER",
    )
    pilot: Pilot | None = Field(
        None, description="Where the timeout of some of the file's functions comes from"
    )
    capacity: Capacity | None = Field(
        None, description="What the file's rates are shares of, which is searched before"
    )


class Subject(Form):
    """A part of the rows of an experiment, under a name that claims and figures use."""

    run: Name | None = Field(None, description="One of the entry's runs, if it has several")
    experiment: str = Field(
        min_length=1, description="Of a simulation a model, with @ and the parameters of its sweep"
    )
    function: Name | None = Field(None, description="Rows of this function alone")
    without: list[Name] = Field(
        default_factory=list, description="No rows of these functions, which share the machine"
    )
    skip: int = Field(0, ge=0, description="Without the first so many requests")
    after: Duration = Field(0, description="Requests since so long after the first")
    life: list[Annotated[int, Field(ge=1)]] | None = Field(
        None,
        min_length=2,
        max_length=2,
        description="Invocations of instances by their position in the instance's life, from the"
        " first of the two to the second, such as [1, 5] for each one's first five",
    )

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if self.life is not None and self.life[0] > self.life[1]:
            raise ValueError(f"life: {self.life[0]} comes after {self.life[1]}")
        return self


class Statement(Form):
    """What is printed, and where."""

    paper: str = Field(description="What is claimed, with its figures")
    place: str = Field(description="Section, figure or table")


class Claim(Statement):
    """A statement of the paper that the rows can confirm or contradict."""

    claim: str | None = Field(
        None, description="Such as 'busy.execution_mean / idle.execution_mean > 1.5'"
    )
    only_on: str | None = Field(
        None,
        description="The kind of platform whose own times it is about; elsewhere it is shown, and"
        " never judged",
    )
    quiet: bool = Field(
        False,
        description="Not judged on a noisy machine, whose noise is as large as what it is about",
    )
    unavailable: str | None = Field(None, description="Why nothing here can check it")
    otherwise: str | None = Field(
        None, description="Why it is known to differ here, where it does; said with that verdict"
    )

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.claim is None) == (self.unavailable is None):
            raise ValueError(
                "a claim has either an expression (claim) or the reason why it has none"
                " (unavailable)"
            )
        return self


class Printed(Form):
    """A value that the paper prints, for the table beside ours."""

    what: str
    value: Number | str
    unit: str = ""
    provider: str = Field(description="Whose platform it was measured on")
    place: str
    scaled: Number | None = Field(None, description="What it comes to at the scale of this entry")
    ours: str | None = Field(None, description="An expression, such as 'busy.execution_mean'")


class Mark(Form):
    """A printed value as a point of a figure."""

    name: str = Field(description="The provider")
    x: Number | str
    y: Number
    place: str


class Axis(Form):
    """An axis of a figure."""

    title: str = Field(description="With its unit")
    log: bool = False


class Series(Form):
    """A line of a figure, or one kind of its bars."""

    name: str
    x: list[Number | str] = Field(min_length=1)
    subjects: list[str] = Field(min_length=1, description="One for each x")
    y: str = Field(description="An expression with * for the subject: '*.execution_mean'")

    @model_validator(mode="after")
    def _paired(self) -> Self:
        if len(self.x) != len(self.subjects):
            raise ValueError(
                f"{len(self.x)} values of x, but {len(self.subjects)} subjects: one for each"
            )
        if "*" not in self.y:
            raise ValueError("y has no * for the subject, such as '*.execution_mean'")
        return self

    def expressions(self) -> list[str]:
        """The expression of each point."""
        return [self.y.replace("*", subject) for subject in self.subjects]


class Course(Form):
    """How an experiment goes on: execution and instances over time."""

    subject: str
    name: str = ""


class Figure(Form):
    """A chart: series over x with the printed values as points, or the course of an experiment."""

    name: Name
    title: str
    x: Axis
    y: Axis
    series: list[Series] = Field(default_factory=list)
    course: Course | None = None
    printed: list[Mark] = Field(default_factory=list)
    absent: dict[str, str] = Field(
        default_factory=dict,
        description="What the paper has at an x of its own and nothing here can measure: why",
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if bool(self.series) == (self.course is not None):
            raise ValueError("a figure has either series or a course")
        return self


class Scale(Form):
    """Something that is smaller here than in the paper, by one factor."""

    factor: str = Field(description="Such as 'time by 120'; it stands on every figure")
    means: str = Field(description="What it comes to, for the text")


class Takes(Form):
    """How long an entry takes, as it was measured on two CPUs with nothing else running."""

    whole: Duration | None = Field(None, gt=0)
    quick: Duration | None = Field(None, gt=0, description="With --quick")


class Needs(Form):
    """What the machine must have."""

    cpus: int = Field(1, ge=1, description="CPUs that can be used")
    hardware: list[Literal["pmu", "resctrl"]] = Field(
        default_factory=list,
        description="Counters of the processor: of performance events (pmu), of memory's bandwidth",
    )


class Entry(Form):
    """A figure or table of the paper, and how it is reproduced."""

    shows: str = Field(description="Such as 'Figure 6'")
    title: str
    section: str
    description: str
    runs: dict[Name, EntryRun] = Field(default_factory=dict)
    scale: list[Scale] = Field(
        default_factory=list, description="What is smaller here than in the paper"
    )
    takes: Takes = Field(default_factory=Takes)
    needs: Needs = Field(default_factory=Needs)
    subjects: dict[Annotated[str, Field(min_length=1)], Subject] = Field(default_factory=dict)
    fits: dict[Name, Fit] = Field(
        default_factory=dict, description="Power laws, whose exponents are NAME.exponent"
    )
    figures: list[Figure] = Field(default_factory=list)
    printed: list[Printed] = Field(default_factory=list)
    claims: dict[Name, Claim] = Field(default_factory=dict)

    def expressions(self) -> list[tuple[tuple[str | int, ...], str]]:
        """Every expression over summaries without a bound, with its key in the file."""
        listed: list[tuple[tuple[str | int, ...], str]] = []
        for number, figure in enumerate(self.figures):
            for position, series in enumerate(figure.series):
                at = ("figures", number, "series", position)
                listed += [(at, text) for text in series.expressions()]
        for name, fit in self.fits.items():
            listed += [(("fits", name), text) for point in fit.points() for text in point]
        listed += [
            (("printed", number, "ours"), item.ours)
            for number, item in enumerate(self.printed)
            if item.ours is not None
        ]
        return listed


def json_schema() -> dict[str, Any]:
    """JSON Schema of an entry's file, for editors and other tools."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Entry.model_json_schema(mode="validation"),
        "title": "Uncia suite entry",
    }
