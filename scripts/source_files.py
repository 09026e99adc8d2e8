"""Reads the source files of a commit, for scripts/lines and scripts/sample-prose."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

EXCLUDED_FOLDERS = {"tests", "benches", "examples", "fuzz", "assets"}
EXCLUDED_FILES = re.compile(r"_tests\.rs$|\.(test|spec)\.tsx?$|\.d\.ts$")

# A Rust block comment can contain others, so only its start is matched.
RUST_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*)
      | (?P<text>\bb?r(?P<hashes>\#*)".*?"(?P=hashes)
          | b?"(?:\\.|[^"\\])*"
          | b?'(?:\\.[^']*|[^'\\])')
    """,
    re.VERBOSE | re.DOTALL,
)
# A JSX comment is wrapped in braces, which are removed with it.
TYPESCRIPT_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|\{\s*/\*.*?\*/\s*\}|/\*.*?\*/)
      | (?P<text>"(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' | `(?:\\.|[^`\\])*`)
    """,
    re.VERBOSE | re.DOTALL,
)


def is_product_code(path):
    """Whether the file is Rust or TypeScript code that is neither a test, test support nor
    generated."""
    *folders, name = path.split("/")
    return (
        name.endswith((".rs", ".ts", ".tsx"))
        and not EXCLUDED_FILES.search(name)
        and folders[:2] != ["crates", "testkit"]
        and not any(folder in EXCLUDED_FOLDERS or folder.endswith("_tests") for folder in folders)
    )


def git(*arguments, **options):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, **options)


def commit_id(name):
    """Returns the full id of a commit, or an empty string if there is no such commit."""
    found = git("rev-parse", "--quiet", "--verify", "--end-of-options", name + "^{commit}")
    return found.stdout.decode().strip()


def files_of_commit(commit, is_wanted):
    """Returns the paths and texts of the wanted files of a commit."""
    listed = git("ls-tree", "-r", "-z", "--name-only", commit, check=True)
    paths = list(filter(is_wanted, listed.stdout.decode().split("\0")))
    names = "".join(f"{commit}:{path}\n" for path in paths)
    contents = git("cat-file", "--batch", input=names.encode(), check=True).stdout
    files, at = [], 0
    for path in paths:
        start = contents.index(b"\n", at) + 1
        size = int(contents[at:start].split()[2])
        files.append((path, contents[start : start + size].decode()))
        at = start + size + 1
    return files


def files_of_working_tree(is_wanted):
    """Returns the paths and texts of the wanted files that git tracks or would add."""
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard", check=True)
    paths = sorted(set(filter(is_wanted, listed.stdout.decode().split("\0"))))
    return [(path, (ROOT / path).read_text()) for path in paths if (ROOT / path).is_file()]
