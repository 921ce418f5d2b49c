"""
One table of good and bad objects and changes, for the models and for the real API server alike.

`refused_at` names the fields on which a row is refused; a row without is accepted. Both sides must give this verdict,
these fields, and one sentence where a rule of ours speaks.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Json = dict[str, Any]

ADOPT: Final[Json] = {"spriteName": "my-sprite", "sessionId": "812"}
LAUNCH: Final[Json] = {"spriteName": "my-sprite", "launch": {"command": ["bash", "-l"]}}
CREATED: Final = "2026-01-31T08:00:00Z"
ADOPT_CREATED: Final[Json] = ADOPT | {"sessionCreatedTime": CREATED}
CLAIMED: Final[Json] = ADOPT | {"attached": True, "activeSocketId": "socket-1"}
FINISHED: Final[Json] = ADOPT | {"terminated": True, "attached": False, "activeSocketId": "socket-1"}
KIBI64: Final = 65_536


@dataclass(frozen=True)
class Created:
    """An object that is created."""

    title: str
    spec: Any
    refused_at: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.title


@dataclass(frozen=True)
class Changed:
    """An object that is there, and a JSON merge patch (RFC 7386) of its spec."""

    title: str
    before: Json
    patch: Any
    refused_at: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.title

    @property
    def after(self) -> Any:
        """The spec that the patch makes."""
        return merge(self.before, self.patch)


def merge(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def launch(**changes: Any) -> Json:
    """A spec that launches, with some of `launch` as given."""
    return {"spriteName": "my-sprite", "launch": {"command": ["bash"], **changes}}


def hold(**changes: Any) -> Json:
    """A spec that holds as given."""
    return ADOPT | {"holdWanted": True, "hold": changes}


def env(*entries: Json) -> Json:
    """A spec that launches with these variables."""
    return launch(env=list(entries))


def secret(name: str, key: str) -> Json:
    """A spec that launches with one variable from this Secret."""
    return env({"name": "A", "valueFrom": {"secretKeyRef": {"name": name, "key": key}}})


def token(**changes: Any) -> Json:
    """A spec with this reference to its token."""
    return ADOPT | {"tokenSecretRef": changes}


SECRET: Final = "spec.launch.env[0].valueFrom.secretKeyRef"
NUMBERED: Final = [{"name": f"V{number}", "value": ""} for number in range(101)]
FROM_SECRET: Final[Json] = {"secretKeyRef": {"name": "keys", "key": "api"}}

CREATIONS: Final = (
    Created("adopting is enough", ADOPT),
    Created("launching is enough", LAUNCH),
    Created("adopting or else launching", ADOPT | LAUNCH),
    Created(
        "every field at once",
        ADOPT_CREATED
        | {
            "launch": {
                "command": ["bash", "-c", "exec claude"],
                "workingDirectory": "/work",
                "env": [{"name": "A", "value": ""}, {"name": "_b2", "valueFrom": FROM_SECRET}],
                "columns": 65_535,
                "rows": 1,
            },
            "attached": True,
            "holdWanted": True,
            "terminated": False,
            "activeSocketId": "",
            "hold": {"mode": "Always", "expireSeconds": 3_600, "refreshSeconds": 1_800},
            "idleTimeoutSeconds": 31_536_000,
            "idlePolicy": "Inactive",
            "relaunch": "OnLost",
            "deletionPolicy": "Orphan",
            "suspend": True,
            "tokenSecretRef": {"name": "token", "key": "mine"},
        },
    ),
    Created("no spec at all", None, ("spec",)),
    Created("an empty spec", {}, ("spec.spriteName",)),
    Created("a spec that is a word", "my-sprite", ("spec",)),
    Created("neither sessionId nor launch", {"spriteName": "my-sprite"}, ("spec",)),
    Created("unknown fields are dropped", ADOPT | {"colour": "red", "hold": {"until": "noon"}}),
    Created("a null is an absent field", ADOPT | {"launch": None, "activeSocketId": None, "holdWanted": None}),
    Created("a sessionId of null and no launch", {"spriteName": "my-sprite", "sessionId": None}, ("spec",)),
    # Names of sprites.
    Created("a sprite name of one character", ADOPT | {"spriteName": "a"}),
    Created("a sprite name of 63 characters", ADOPT | {"spriteName": "a" * 63}),
    Created("a sprite name of 64 characters", ADOPT | {"spriteName": "a" * 64}, ("spec.spriteName",)),
    Created("a sprite name with a capital", ADOPT | {"spriteName": "My-sprite"}, ("spec.spriteName",)),
    Created("a sprite name that ends with a dash", ADOPT | {"spriteName": "my-"}, ("spec.spriteName",)),
    Created("a sprite name that ends with a line end", ADOPT | {"spriteName": "my-sprite\n"}, ("spec.spriteName",)),
    Created("a sprite name with a digit of another script", ADOPT | {"spriteName": "my-\u0663"}, ("spec.spriteName",)),
    Created("an empty sprite name", ADOPT | {"spriteName": ""}, ("spec.spriteName",)),
    Created("a sprite name that is a number", ADOPT | {"spriteName": 7}, ("spec.spriteName",)),
    # Sessions.
    Created("an empty sessionId", ADOPT | {"sessionId": ""}, ("spec.sessionId",)),
    Created("a sessionId of 128 characters", ADOPT | {"sessionId": "\u00e9" * 128}),
    Created("a sessionId of 129 characters", ADOPT | {"sessionId": "1" * 129}, ("spec.sessionId",)),
    Created("a sessionId that is a number", ADOPT | {"sessionId": 812}, ("spec.sessionId",)),
    Created("sessionCreatedTime beside sessionId", ADOPT_CREATED),
    Created("sessionCreatedTime alone", LAUNCH | {"sessionCreatedTime": CREATED}, ("spec.sessionCreatedTime",)),
    Created(
        "a created time with nine digits of a second", ADOPT | {"sessionCreatedTime": "2026-01-31T08:00:00.123456789Z"}
    ),
    Created("a created time with an offset", ADOPT | {"sessionCreatedTime": "2026-01-31T08:00:00+05:30"}),
    *(
        Created(
            f"a created time spelled {spelling!r}",
            ADOPT | {"sessionCreatedTime": spelling},
            ("spec.sessionCreatedTime",),
        )
        for spelling in (
            "2026-01-31t08:00:00z",
            "2026-01-31 08:00:00Z",
            "2026-01-31T08:00:00",
            "2026-01-31T08:00Z",
            "2026-01-31",
            "2026-01-31T08:00:00.Z",
            "2026-01-31T08:00:00.1234567890Z",
            "2026-01-31T08:00:00+0530",
            "2026-02-30T08:00:00Z",
            "2026-13-01T08:00:00Z",
            "2026-01-31T24:00:00Z",
            "2026-12-31T23:59:60Z",
            "2026-01-31T08:00:00+24:00",
            "2026-01-31T08:00:00+99:99",
            "2026-01-31T08:00:00+24:59",
            "2026-01-31T08:00:00+25:00",
            "2026-01-31T08:00:00+10:60",
            "0000-01-01T00:00:00Z",
            "0001-01-01T00:00:00+01:00",
            "9999-12-31T23:59:59-01:00",
            "",
            "soon",
        )
    ),
    Created(
        "a created time that is a number", ADOPT | {"sessionCreatedTime": 1_769_846_400}, ("spec.sessionCreatedTime",)
    ),
    # Launch.
    Created("a launch without command", ADOPT | {"launch": {}}, ("spec.launch.command",)),
    Created("a command of no word", launch(command=[]), ("spec.launch.command",)),
    Created("a command of 200 words", launch(command=["a"] * 200)),
    Created("a command of 201 words", launch(command=["a"] * 201), ("spec.launch.command",)),
    Created("a command that is a text", launch(command="bash"), ("spec.launch.command",)),
    Created("an empty first word", launch(command=["", "a"]), ("spec.launch.command",)),
    Created("an empty later word", launch(command=["a", ""])),
    Created("a word of 32,768 characters", launch(command=["a", "\u00e9" * 32_768])),
    Created("a word of 32,769 characters", launch(command=["a", "b" * 32_769]), ("spec.launch.command[1]",)),
    Created("a word with a NUL", launch(command=["a", "b\x00c"]), ("spec.launch.command[1]",)),
    Created("a word with a line end", launch(command=["a", "b\nc"])),
    Created("a word that is a number", launch(command=["sleep", 5]), ("spec.launch.command[1]",)),
    Created("a word that is null", launch(command=["sleep", None]), ("spec.launch.command[1]",)),
    Created("an empty working directory", launch(workingDirectory=""), ("spec.launch.workingDirectory",)),
    Created("a working directory of 4,096 characters", launch(workingDirectory="/" * 4_096)),
    Created(
        "a working directory of 4,097 characters",
        launch(workingDirectory="/" * 4_097),
        ("spec.launch.workingDirectory",),
    ),
    Created("a working directory with a NUL", launch(workingDirectory="/a\x00"), ("spec.launch.workingDirectory",)),
    Created("100 variables", launch(env=NUMBERED[:100])),
    Created("101 variables", launch(env=NUMBERED), ("spec.launch.env",)),
    Created("a variable's value of 64 KiB", env({"name": "A", "value": "v" * KIBI64})),
    Created("a variable's value of 64 Ki characters of three bytes", env({"name": "A", "value": "\u20ac" * KIBI64})),
    Created(
        "a variable's value above 64 KiB",
        env({"name": "A", "value": "v" * (KIBI64 + 1)}),
        ("spec.launch.env[0].value",),
    ),
    Created("a variable's value with a NUL", env({"name": "A", "value": "\x00"}), ("spec.launch.env[0].value",)),
    Created(
        "both value and valueFrom", env({"name": "A", "value": "", "valueFrom": FROM_SECRET}), ("spec.launch.env[0]",)
    ),
    Created("neither value nor valueFrom", env({"name": "A"}), ("spec.launch.env[0]",)),
    Created("an empty valueFrom", env({"name": "A", "valueFrom": {}}), ("spec.launch.env[0].valueFrom.secretKeyRef",)),
    Created(
        "a Secret without key",
        env({"name": "A", "valueFrom": {"secretKeyRef": {"name": "keys"}}}),
        ("spec.launch.env[0].valueFrom.secretKeyRef.key",),
    ),
    Created(
        "a Secret without name",
        env({"name": "A", "valueFrom": {"secretKeyRef": {"name": "", "key": "api"}}}),
        ("spec.launch.env[0].valueFrom.secretKeyRef.name",),
    ),
    Created("a variable without a name", env({"value": "x"}), ("spec.launch.env[0].name",)),
    *(
        Created(f"a variable named {name!r}", env({"name": name, "value": ""}), ("spec.launch.env[0].name",))
        for name in ("1A", "A=B", "A;x", "A B", "", "A\n", "\u00c4", "A-B")
    ),
    Created("a variable's name of 256 characters", env({"name": "A" * 256, "value": ""})),
    Created("a variable's name of 257 characters", env({"name": "A" * 257, "value": ""}), ("spec.launch.env[0].name",)),
    Created(
        "the same variable twice",
        env({"name": "A", "value": "1"}, {"name": "A", "value": "2"}),
        ("spec.launch.env[1]",),
    ),
    Created("no columns", launch(columns=0), ("spec.launch.columns",)),
    Created("65,536 rows", launch(rows=65_536), ("spec.launch.rows",)),
    Created("columns that are a text", launch(columns="80"), ("spec.launch.columns",)),
    Created("columns that are true", launch(columns=True), ("spec.launch.columns",)),
    Created("80.0 columns are 80", launch(columns=80.0)),
    Created("80.5 columns", launch(columns=80.5), ("spec.launch.columns",)),
    Created("the least of everything in launch", launch(command=["a"], workingDirectory="/", columns=1, rows=1)),
    Created("the most columns and rows", launch(columns=65_535, rows=65_535)),
    Created("65,536 columns", launch(columns=65_536), ("spec.launch.columns",)),
    Created("no rows", launch(rows=0), ("spec.launch.rows",)),
    Created("names of a Secret at their shortest", secret("s", "k")),
    Created("names of a Secret at their longest", secret("s" * 253, "k" * 253)),
    Created("a Secret's name that is too long", secret("s" * 254, "k"), (f"{SECRET}.name",)),
    Created("an empty key of a Secret", secret("s", ""), (f"{SECRET}.key",)),
    Created("a key of a Secret that is too long", secret("s", "k" * 254), (f"{SECRET}.key",)),
    # Holds.
    Created("an empty hold", hold()),
    Created("an expiry of 90 alone", hold(expireSeconds=90)),
    Created("an expiry of 90.0 is 90", hold(expireSeconds=90.0)),
    Created("a refresh of 45.0 is 45", hold(refreshSeconds=45.0)),
    Created(
        "90.0 and 45.0 together, where a rule reads them", hold(expireSeconds=90.0, refreshSeconds=45.0), ("spec.hold",)
    ),
    Created("an expiry of 3,600.5", hold(expireSeconds=3_600.5), ("spec.hold.expireSeconds",)),
    Created("an expiry of 29.0", hold(expireSeconds=29.0), ("spec.hold.expireSeconds",)),
    Created("an expiry of 29", hold(expireSeconds=29), ("spec.hold.expireSeconds",)),
    Created("an expiry of 30", hold(expireSeconds=30)),
    Created("an expiry of 3,600", hold(expireSeconds=3_600)),
    Created("an expiry of 3,601", hold(expireSeconds=3_601), ("spec.hold.expireSeconds",)),
    Created("an expiry that is a text", hold(expireSeconds="90"), ("spec.hold.expireSeconds",)),
    Created("an expiry that is true", hold(expireSeconds=True), ("spec.hold.expireSeconds",)),
    Created("a refresh of 4", hold(refreshSeconds=4), ("spec.hold.refreshSeconds",)),
    Created("a refresh of 1,801", hold(refreshSeconds=1_801), ("spec.hold.refreshSeconds",)),
    Created("a refresh of half the expiry", hold(expireSeconds=300, refreshSeconds=150)),
    Created(
        "a refresh above half the expiry", hold(expireSeconds=300, refreshSeconds=151), ("spec.hold.refreshSeconds",)
    ),
    Created(
        "a refresh of half an odd expiry, rounded up",
        hold(expireSeconds=31, refreshSeconds=16),
        ("spec.hold.refreshSeconds",),
    ),
    Created("a refresh of 1,800 alone", hold(refreshSeconds=1_800)),
    Created(
        "an expiry below its least, and a refresh above half of it",
        hold(expireSeconds=10, refreshSeconds=6),
        ("spec.hold.expireSeconds", "spec.hold.refreshSeconds"),
    ),
    Created("a hold of an unknown mode", hold(mode="Sometimes"), ("spec.hold.mode",)),
    Created("a hold that is a list", ADOPT | {"hold": []}, ("spec.hold",)),
    # Words, flags and numbers.
    Created("no idle timeout", ADOPT | {"idleTimeoutSeconds": 0}),
    Created("an idle timeout of a year", ADOPT | {"idleTimeoutSeconds": 31_536_000}),
    Created("an idle timeout above a year", ADOPT | {"idleTimeoutSeconds": 31_536_001}, ("spec.idleTimeoutSeconds",)),
    Created("a negative idle timeout", ADOPT | {"idleTimeoutSeconds": -1}, ("spec.idleTimeoutSeconds",)),
    Created("an unknown idle policy", ADOPT | {"idlePolicy": "detached"}, ("spec.idlePolicy",)),
    Created("an unknown relaunch", ADOPT | {"relaunch": "Always"}, ("spec.relaunch",)),
    Created("an unknown deletion policy", ADOPT | {"deletionPolicy": ""}, ("spec.deletionPolicy",)),
    Created("terminated as a text", ADOPT | {"terminated": "true"}, ("spec.terminated",)),
    Created("attached as a number", ADOPT | {"attached": 1}, ("spec.attached",)),
    Created("a token Secret at its shortest", token(name="t", key="k")),
    Created("a token Secret at its longest", token(name="t" * 253, key="k" * 253)),
    Created("a token Secret's name that is too long", token(name="t" * 254), ("spec.tokenSecretRef.name",)),
    Created("a token Secret's key that is too long", token(name="t", key="k" * 254), ("spec.tokenSecretRef.key",)),
    Created("a token Secret with an empty key", token(name="t", key=""), ("spec.tokenSecretRef.key",)),
    Created("a sessionId of one character", ADOPT | {"sessionId": "1"}),
    Created("a refresh of 5", hold(refreshSeconds=5)),
    Created("a token Secret by name", ADOPT | {"tokenSecretRef": {"name": "token"}}),
    Created("a token Secret without name", ADOPT | {"tokenSecretRef": {}}, ("spec.tokenSecretRef.name",)),
    Created(
        "a token Secret with an empty name", ADOPT | {"tokenSecretRef": {"name": ""}}, ("spec.tokenSecretRef.name",)
    ),
    Created("a socket id of 128 characters", ADOPT | {"activeSocketId": "s" * 128}),
    Created("a socket id of 129 characters", ADOPT | {"activeSocketId": "s" * 129}, ("spec.activeSocketId",)),
    # Ends at creation.
    Created("terminated from the beginning", ADOPT | {"terminated": True}),
    Created("terminated and a socket from the beginning", ADOPT | {"terminated": True, "activeSocketId": "socket-1"}),
    Created(
        "terminated and attached from the beginning", ADOPT | {"terminated": True, "attached": True}, ("spec.attached",)
    ),
    # Several faults at once: after some of the schema's, no rule is run.
    Created(
        "a bad name and an empty first word, both told",
        launch(command=[""]) | {"spriteName": "A"},
        ("spec.spriteName", "spec.launch.command"),
    ),
    Created(
        "a number below its least hides no rule",
        launch(command=[""], rows=0),
        ("spec.launch.command", "spec.launch.rows"),
    ),
    Created("a wrong type hides the rules", launch(command=[""], rows="24"), ("spec.launch.rows",)),
    Created(
        "a text that is too long hides the rules", launch(command=[""]) | {"spriteName": "a" * 64}, ("spec.spriteName",)
    ),
    Created("an unknown word hides the rules", launch(command=[""]) | {"relaunch": "Always"}, ("spec.relaunch",)),
    Created(
        "a missing field hides the rules", launch(command=[""]) | {"tokenSecretRef": {}}, ("spec.tokenSecretRef.name",)
    ),
    Created(
        "an odd time hides no rule",
        LAUNCH | {"sessionCreatedTime": "2026-01-31T08:00:00+25:00", "spriteName": "A"},
        ("spec", "spec.sessionCreatedTime", "spec.spriteName"),
    ),
    Created(
        "the same variable twice hides no rule",
        env({"name": "A", "value": "1"}, {"name": "A"}),
        ("spec.launch.env[1]",),
    ),
)
"""Objects that are created."""

CHANGES: Final = (
    Changed("nothing", ADOPT_CREATED, {}),
    Changed("the sprite's name", ADOPT, {"spriteName": "other"}, ("spec.spriteName",)),
    Changed("the sprite's name away", ADOPT, {"spriteName": None}, ("spec.spriteName",)),
    Changed("a sessionId set late", LAUNCH, {"sessionId": "812"}, ("spec.sessionId",)),
    Changed("another sessionId", ADOPT, {"sessionId": "813"}, ("spec.sessionId",)),
    Changed("the sessionId away, with launch", ADOPT | LAUNCH, {"sessionId": None}, ("spec.sessionId",)),
    Changed("the sessionId away, without launch", ADOPT, {"sessionId": None}, ("spec", "spec.sessionId")),
    Changed("a sessionCreatedTime set late", ADOPT, {"sessionCreatedTime": CREATED}, ("spec.sessionCreatedTime",)),
    Changed(
        "another sessionCreatedTime",
        ADOPT_CREATED,
        {"sessionCreatedTime": "2026-01-31T08:00:01Z"},
        ("spec.sessionCreatedTime",),
    ),
    Changed(
        "another sessionCreatedTime by a nanosecond",
        ADOPT_CREATED,
        {"sessionCreatedTime": "2026-01-31T08:00:00.000000001Z"},
        ("spec.sessionCreatedTime",),
    ),
    Changed("the sessionCreatedTime away", ADOPT_CREATED, {"sessionCreatedTime": None}, ("spec.sessionCreatedTime",)),
    Changed("the same instant in another zone", ADOPT_CREATED, {"sessionCreatedTime": "2026-01-31T13:30:00+05:30"}),
    Changed("the same instant with a fraction", ADOPT_CREATED, {"sessionCreatedTime": "2026-01-31T08:00:00.000Z"}),
    Changed("an odd sessionCreatedTime", ADOPT_CREATED, {"sessionCreatedTime": "soon"}, ("spec.sessionCreatedTime",)),
    *(
        Changed(
            f"a sessionCreatedTime that only its pattern refuses, {spelling!r}",
            ADOPT_CREATED,
            {"sessionCreatedTime": spelling},
            ("spec.sessionCreatedTime",),
        )
        for spelling in ("2026-01-31T08:00:00+24:00", "0000-01-01T00:00:00Z", "2026-01-31T08:00:00.0000000000Z")
    ),
    *(
        Changed(
            f"a sessionCreatedTime that no rule can read, {spelling!r}",
            ADOPT_CREATED,
            {"sessionCreatedTime": spelling},
            ("spec", "spec.sessionCreatedTime"),
        )
        for spelling in ("2026-01-31T08:00:00+25:00", "2026-01-31t08:00:00z")
    ),
    Changed(
        "a day that is not in the calendar",
        ADOPT_CREATED,
        {"sessionCreatedTime": "2026-02-30T08:00:00Z"},
        ("spec.sessionCreatedTime",),
    ),
    Changed("launch added", ADOPT, {"launch": {"command": ["bash"]}}),
    Changed("launch away beside sessionId", ADOPT | LAUNCH, {"launch": None}),
    Changed("launch away without sessionId", LAUNCH, {"launch": None}, ("spec",)),
    Changed("another command", LAUNCH, {"launch": {"command": ["zsh"]}}),
    Changed("attached for the first time", ADOPT, {"attached": True, "activeSocketId": "socket-1"}),
    Changed("a null patch on activeSocketId", CLAIMED, {"activeSocketId": None}, ("spec.activeSocketId",)),
    Changed("activeSocketId revoked", CLAIMED, {"activeSocketId": "", "attached": False}),
    Changed("another activeSocketId", CLAIMED, {"activeSocketId": "socket-2"}),
    Changed("attached away", CLAIMED, {"attached": None}),
    Changed(
        "a null patch on a revoked activeSocketId",
        ADOPT | {"activeSocketId": ""},
        {"activeSocketId": None},
        ("spec.activeSocketId",),
    ),
    Changed("terminated", ADOPT, {"terminated": True}),
    Changed("terminated over an attachment", CLAIMED, {"terminated": True}),
    Changed(
        "terminated together with a new attachment", ADOPT, {"terminated": True, "attached": True}, ("spec.attached",)
    ),
    Changed("terminated together with a new socket", CLAIMED, {"terminated": True, "activeSocketId": "socket-2"}),
    Changed("terminated back to false", FINISHED, {"terminated": False}, ("spec.terminated",)),
    Changed("terminated away", FINISHED, {"terminated": None}, ("spec.terminated",)),
    Changed("terminated as a text over true", FINISHED, {"terminated": "no"}, ("spec.terminated",)),
    Changed("a new attachment on a terminated object", FINISHED, {"attached": True}, ("spec.attached",)),
    Changed(
        "a new attachment on a terminated object that never had one",
        ADOPT | {"terminated": True},
        {"attached": True},
        ("spec.attached",),
    ),
    Changed("a terminated object detached", CLAIMED | {"terminated": False}, {"terminated": True, "attached": False}),
    Changed(
        "a new socket id on a terminated object", FINISHED, {"activeSocketId": "socket-2"}, ("spec.activeSocketId",)
    ),
    Changed(
        "a first socket id on a terminated object",
        ADOPT | {"terminated": True},
        {"activeSocketId": "socket-1"},
        ("spec.activeSocketId",),
    ),
    Changed("a terminated object revoked", FINISHED, {"activeSocketId": ""}),
    Changed(
        "a claim on a terminated object",
        FINISHED,
        {"attached": True, "activeSocketId": "socket-2"},
        ("spec.attached", "spec.activeSocketId"),
    ),
    Changed(
        "everything else of a terminated object",
        FINISHED,
        {"deletionPolicy": "Orphan", "suspend": True, "holdWanted": True},
    ),
    Changed(
        "a hold with a bad refresh",
        ADOPT,
        {"hold": {"expireSeconds": 60, "refreshSeconds": 31}},
        ("spec.hold.refreshSeconds",),
    ),
    Changed(
        "only the expiry, below twice the refresh",
        hold(expireSeconds=60, refreshSeconds=30),
        {"hold": {"expireSeconds": 59}},
        ("spec.hold.refreshSeconds",),
    ),
    Changed("the token's Secret", ADOPT | {"tokenSecretRef": {"name": "a"}}, {"tokenSecretRef": {"name": "b"}}),
    Changed("the token's Secret away", ADOPT | {"tokenSecretRef": {"name": "a"}}, {"tokenSecretRef": None}),
    Changed(
        "the token's Secret without its name",
        ADOPT | {"tokenSecretRef": {"name": "a"}},
        {"tokenSecretRef": {"name": None}},
        ("spec.tokenSecretRef.name",),
    ),
    Changed(
        "defaults back by null",
        ADOPT | {"idleTimeoutSeconds": 5, "suspend": True},
        {"idleTimeoutSeconds": None, "suspend": None},
    ),
    Changed(
        "a bad variable added",
        env({"name": "A", "value": "1"}),
        {"launch": {"env": [{"name": "A", "value": "1"}, {"name": "1A", "value": ""}]}},
        ("spec.launch.env[1].name",),
    ),
)
"""Objects that are changed."""

INHERITED: Final = (
    Changed("a bad sprite name beside another field", ADOPT | {"spriteName": "A"}, {"suspend": True}),
    Changed("a bad number beside another field", ADOPT | {"idleTimeoutSeconds": -5}, {"suspend": True}),
    Changed(
        "a bad number for another bad number",
        ADOPT | {"idleTimeoutSeconds": -5},
        {"idleTimeoutSeconds": -6},
        ("spec.idleTimeoutSeconds",),
    ),
    Changed("an unknown word beside another field", ADOPT | {"relaunch": "Always"}, {"suspend": True}),
    Changed("an unknown word and a rule", ADOPT | {"relaunch": "Always"}, {"spriteName": "b"}, ("spec.spriteName",)),
    Changed("a bad refresh beside another field", hold(expireSeconds=60, refreshSeconds=31), {"suspend": True}),
    Changed(
        "a bad refresh beside another field of hold",
        hold(expireSeconds=60, refreshSeconds=31),
        {"hold": {"mode": "Always"}},
        ("spec.hold.refreshSeconds",),
    ),
    Changed("a bad word beside another field of launch", launch(command=["a", "\x00"]), {"launch": {"rows": 2}}),
    Changed(
        "a bad word beside another word",
        launch(command=["a", "\x00"]),
        {"launch": {"command": ["b", "\x00"]}},
        ("spec.launch.command[1]",),
    ),
    Changed("too many words beside another field of launch", launch(command=["a"] * 201), {"launch": {"rows": 2}}),
    Changed(
        "a bad variable beside another variable",
        env({"name": "A-B", "value": "1"}),
        {"launch": {"env": [{"name": "C", "value": ""}, {"name": "A-B", "value": "1"}]}},
    ),
    Changed(
        "a bad variable with another value",
        env({"name": "A-B", "value": "1"}),
        {"launch": {"env": [{"name": "A-B", "value": "2"}]}},
    ),
    Changed(
        "a variable with both values and another value",
        env({"name": "A", "value": "1", "valueFrom": FROM_SECRET}),
        {"launch": {"env": [{"name": "A", "value": "2", "valueFrom": FROM_SECRET}]}},
        ("spec.launch.env[0]",),
    ),
    Changed("neither sessionId nor launch beside another field", {"spriteName": "a"}, {"suspend": True}, ("spec",)),
    Changed("neither sessionId nor launch, and nothing changed", {"spriteName": "a"}, {}),
    Changed(
        "a created time alone beside another field",
        LAUNCH | {"sessionCreatedTime": CREATED},
        {"suspend": True},
        ("spec.sessionCreatedTime",),
    ),
    Changed(
        "terminated and attached from the beginning", ADOPT | {"terminated": True, "attached": True}, {"suspend": True}
    ),
    Changed("a NUL in a directory beside another field", launch(workingDirectory="\x00"), {"launch": {"rows": 3}}),
)
"""Changes of objects stored under looser limits, as an older CRD may have had them: the unchanged keeps its right."""
