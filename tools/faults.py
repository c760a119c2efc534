"""`python -m tools faults [OPTIONS]`: inject faults into real workers and check what clients see.

    python -m tools faults [--seconds 60] [--seed N] [--database NAME] [--faults N]
                           [--layer none|memory|redis|postgres] [--mutant NAME] [--mutants]

Missing programs are installed if permitted; otherwise the command names their packages. CI uses
`--seconds 60`. `--faults 2000` runs until 2000 faults were injected. `--mutants` runs with known
defects and succeeds if every one is detected.
"""

from tools.database_servers import program
from tools.processes import module

# Programs, and Debian's packages that bring them.
ALWAYS = {"nginx": "nginx-light", "faketime": "faketime"}
BY_OPTION = {
    "postgres": {"initdb": "postgresql", "pg_ctl": "postgresql"},
    "mariadb": {"mariadbd": "mariadb-server", "mariadb-install-db": "mariadb-server"},
}
REDIS = {"redis-server": "redis-server"}


def main(arguments: list[str]) -> int:
    for name, package in needed(arguments).items():
        program(name, package)
    return module("tests.faults", *arguments)


def needed(arguments: list[str]) -> dict[str, str]:
    """The programs that a campaign of these options starts, and their packages."""
    words = {word.rpartition("=")[2] for word in arguments}
    found = ALWAYS | REDIS if layer_of(arguments) == "redis" else dict(ALWAYS)
    for word in words & BY_OPTION.keys():
        found |= BY_OPTION[word]
    return found


def layer_of(arguments: list[str]) -> str:
    """What rings; the last that is named, as everywhere."""
    words = " ".join(arguments).replace("=", " ").split()
    named = [after for word, after in zip(words, words[1:], strict=False) if word == "--layer"]
    return named[-1] if named else "redis"
