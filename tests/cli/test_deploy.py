"""The files in ``deploy/``: units that systemd accepts, and an image whose steps are run here, without a builder."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.streams import TICKS, rows, text_of

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_units_and_finds_them_closed(tmp_path: Path) -> None:
    """Two processes of systemd's own; over a second together."""
    for name in ("synthstream@.service", "synthstream@.timer"):
        text = (DEPLOY / name).read_text().replace("/opt/synthstream/bin/synthstream", "/bin/true")
        (tmp_path / name).write_text(text)
    place = str(tmp_path / "synthstream@.service")
    verified = subprocess.run(["systemd-analyze", "verify", place], capture_output=True, text=True)  # noqa: S603, S607
    said = [line for line in verified.stderr.splitlines() if "synthstream" in line and "root" not in line]
    assert not said
    judged = subprocess.run(  # noqa: S603
        ["systemd-analyze", "security", "--offline=yes", "--threshold=25", place],  # noqa: S607
        capture_output=True,
        text=True,
    )
    assert judged.returncode == 0, judged.stdout[-500:]


Step = tuple[str, str]


def stages(text: str) -> list[list[Step]]:
    """Instructions of a Dockerfile, by stage, without the comments."""
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]
    found: list[list[Step]] = []
    for line in lines:
        word, rest = line.split(" ", 1)
        if word == "FROM":
            found.append([])
        found[-1].append((word, rest))
    return found


def test_the_image_is_what_it_ought_to_be() -> None:
    """Not root, one volume; a health check and a command of this program's; all that it copies is let through."""
    build, final = stages((DEPLOY / "Dockerfile").read_text())
    last = dict(final)
    assert last["USER"] == "10001:10001"
    assert last["VOLUME"] == last["WORKDIR"] == "/stream"
    copied = [part for word, rest in build if word == "COPY" for part in rest.split()[:-1]]
    let = (DEPLOY / "Dockerfile.dockerignore").read_text()
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}\n" in let
    assert all(json.loads(last[word])[0] in ("synthstream", "run") for word in ("ENTRYPOINT", "CMD"))


def isolated() -> bool:
    """Whether this user may mount, in a namespace of its own, and become another user there."""
    may = os.geteuid() == 0 and all(shutil.which(name) for name in ("unshare", "setpriv", "chroot"))
    return may and not subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode  # noqa: S607


def script(image: list[list[Step]], place: Path) -> str:
    """What a builder would do, each stage over this machine's own root, then what a container would."""
    python = Path(sys.executable).resolve().parent
    libraries = sysconfig.get_path("purelib")
    lines = ["set -eu", "mount --make-rprivate /"]
    for number, steps in enumerate(image):
        top, lower = place / f"{number}", place / f"{number}.upper"
        lines += [f"mkdir -p {top} {lower} {lower}.work"]
        lines += [f"mount -t overlay o -o lowerdir=/,upperdir={lower},workdir={lower}.work {top}"]
        lines += [f"mount --rbind /{name} {top}/{name}" for name in ("dev", "proc")]
        lines += [f"chmod 755 {top}/root"]  # where this machine's Python may lie
        lines += [f"mkdir {top}/opt/libraries", f"mount --bind {libraries} {top}/opt/libraries"]  # also from below /tmp
        for word, rest in steps:
            *copied, there = rest.removeprefix("--from=build ").split()
            if word == "COPY":
                base = f"{place}/0/" if rest.startswith("--from=build") else f"{ROOT}/"
                lines += [f"mkdir -p {top}{there if there.endswith('/') else Path(there).parent}"]
                lines += [f"cp -a {base}{name.lstrip('/')} {top}{there}" for name in copied]
            elif word == "RUN":
                lines += [f"chroot {top} env PATH={python}:$PATH PIP_NO_DEPS=1 sh -c {shlex.quote(rest)}"]
                if "-m venv" in rest:  # in the place of what the index has
                    lines += [
                        f"echo /opt/libraries > $(echo {top}/opt/synthstream/lib/python*/site-packages)/these.pth"
                    ]
    last = dict(image[-1])
    user, group = last["USER"].split(":")
    run = f"chroot {top} setpriv --reuid {user} --regid {group} --clear-groups --bounding-set=-all --no-new-privs"
    run += f" env -i {last['ENV']} sh -c"
    first = shlex.join([*json.loads(last["ENTRYPOINT"]), "run", "stream.toml", "--yes", "--until", "2026-01-02"])
    started = shlex.join([*json.loads(last["ENTRYPOINT"]), *json.loads(last["CMD"])])
    started = f"{first} && {started}"
    healthy = shlex.join(json.loads(last["HEALTHCHECK"].split("CMD", 1)[1]))
    return "\n".join(
        [
            *lines,
            f"mount -o remount,ro {top}",  # --read-only
            f"mount -t tmpfs memory {top}/tmp",  # noqa: S108 - as --tmpfs does
            f"mount --bind {place}/volume {top}/stream",  # -v
            f"{run} 'cd {last['WORKDIR']}; id -u; touch /opt/mark || echo closed; {started} && {healthy} && echo well'",
        ]
    )


@pytest.mark.slow
@pytest.mark.skipif(not isolated(), reason="needs root, and namespaces of its own")
def test_the_steps_of_the_image_make_a_program_that_follows_a_stream(tmp_path: Path) -> None:
    """Each step of the Dockerfile, then its command and its health check, as a builder and a container would.

    This machine's programs and libraries stand in for those of the base image and of the package index, which
    ``tests/wheel.sh`` asks. Loops are compiled anew; a stream of points has the fewest.
    """
    volume = tmp_path / "volume"
    volume.mkdir()
    (volume / "stream.toml").write_text(text_of("points-zcdp"))
    rows(50, 1).write_parquet(volume / "rows-1.parquet")
    for path in (volume, *volume.iterdir()):
        os.chown(path, 10001, 10001)
    for parent in (tmp_path, *tmp_path.parents[:2]):
        parent.chmod(0o755)
    steps = script(stages((DEPLOY / "Dockerfile").read_text()), tmp_path)
    done = subprocess.run(["unshare", "-m", "bash", "-c", steps], capture_output=True, text=True)  # noqa: S603, S607
    assert done.returncode == 0, done.stderr[-2000:]
    told = done.stdout.splitlines()
    assert {"10001", "closed", "well"} <= set(told), done.stdout[-2000:]
    assert f"{TICKS - 1} new release(s), {TICKS} in all. Nothing more will be due." in told
    assert (volume / "releases" / f"{TICKS - 1:06d}" / "manifest.json").exists()
    assert (volume / "state").stat().st_uid == 10001
