"""The watchdog: the parent of a worker's children. It ends their process groups when the worker no longer can.

It runs as `python -m poise.hold.watchdog EVENTS_FD`, reads orders as JSON lines from standard input and answers on the
given pipe. Order for safety: a group is asked (SIGTERM) when its time is over and killed (SIGKILL) before the lease is;
it is reported empty only when nobody of it is left.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
from contextlib import suppress

import msgspec

from poise.clock import boot_s

LOOK_S = 0.25  # The longest sleep: the clock that counts suspend is not the one that sleeps are measured with.
EMPTYING_LOOK_S = 0.02
_SUBREAPER, _DEATH_SIGNAL = 36, 1  # PR_SET_CHILD_SUBREAPER and PR_SET_PDEATHSIG of prctl(2).
_DEAF_TO = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_READ_MAX = 1 << 16
_libc = ctypes.CDLL(None, use_errno=True)


class Begin(msgspec.Struct, frozen=True, tag=True):
    """Start a command for an item, which may run until then."""

    item: str
    epoch: int
    command: tuple[str, ...]
    environment: dict[str, str]
    until_s: float


class Renew(msgspec.Struct, frozen=True, tag=True):
    """Items may run until then, by the clock that counts suspend."""

    untils: dict[str, float]


class Quit(msgspec.Struct, frozen=True, tag=True):
    """Ask the group of an item to end."""

    item: str


class Rules(msgspec.Struct, frozen=True, tag=True):
    """How long after its time a group is killed, and how long one may take to stop when nobody waits for it."""

    kill_after_s: float
    stop_s: float


Command = Begin | Renew | Quit | Rules


class Begun(msgspec.Struct, frozen=True, tag=True):
    """A command runs, as the leader of a group of this number."""

    item: str
    epoch: int
    pid: int


class Emptied(msgspec.Struct, frozen=True, tag=True):
    """Nobody is left of a group; `code` is how its leader ended (negative: by that signal, None: it never ran)."""

    item: str
    epoch: int
    code: int | None


Event = Begun | Emptied


def prctl(option: int, value: int) -> None:
    """Call prctl(2)."""
    if _libc.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def adopt_orphans() -> None:
    """Become the parent of every descendant that loses its own, so that none of them is out of reach."""
    prctl(_SUBREAPER, 1)


def signal_group(pid: int, number: int) -> bool:
    """Signal a process group, and say whether anybody is left of it."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


class Group:
    """The process group of one item."""

    def __init__(self, item: str, epoch: int, pid: int, until_s: float) -> None:
        """Watch a group that has just begun."""
        self.item, self.epoch, self.pid, self.until_s = item, epoch, pid, until_s
        self.code: int | None = None
        self.ended = False
        self.asked = False
        self.limit_s = float("inf")  # When it is killed though its time is not over.

    def ask(self) -> None:
        """Ask the group to end, once."""
        if not self.asked:
            self.asked = True
            signal_group(self.pid, signal.SIGTERM)

    def kill_s(self, rules: Rules) -> float:
        """Give when the group is killed, if it is still there."""
        return min(self.until_s + rules.kill_after_s, self.limit_s)


class Watchdog:
    """Starts, asks and kills groups. One thread; it never waits for the worker."""

    def __init__(self, events: int) -> None:
        """Report to this pipe, which may be full or broken: what matters is done all the same."""
        self.groups: dict[str, Group] = {}
        self.rules = Rules(0.0, 1.0)
        self.alone = False  # The worker is gone.
        self._events, self._unsaid = events, b""
        self._encode = msgspec.json.Encoder().encode
        os.set_blocking(events, False)
        os.set_inheritable(events, False)

    def take(self, command: Command) -> None:
        """Do what the worker asks."""
        match command:
            case Rules():
                self.rules = command
            case Begin():
                self._begin(command)
            case Renew(untils):
                for item, until_s in untils.items():
                    if item in self.groups:
                        self.groups[item].until_s = until_s
            case Quit(item):
                if item in self.groups:
                    self.groups[item].ask()

    def look(self, now_s: float) -> float:
        """Reap, ask, kill and report as the time demands; give how long to sleep at most."""
        self._reap()
        sleep_s = LOOK_S
        for group in list(self.groups.values()):
            if group.ended and not signal_group(group.pid, 0):
                del self.groups[group.item]
                self.say(Emptied(group.item, group.epoch, group.code))
                continue
            if now_s >= group.until_s:
                group.ask()
            if now_s >= group.kill_s(self.rules):
                signal_group(group.pid, signal.SIGKILL)
            next_s = group.kill_s(self.rules) if group.asked else min(group.until_s, group.kill_s(self.rules))
            sleep_s = min(sleep_s, max(next_s - now_s, EMPTYING_LOOK_S))
            if group.ended:
                sleep_s = EMPTYING_LOOK_S
        self._flush()
        return sleep_s

    def leave_alone(self, now_s: float) -> None:
        """The worker is gone: nobody renews anything any more, and nobody waits."""
        self.alone = True
        for group in self.groups.values():
            group.ask()
            group.limit_s = min(group.limit_s, now_s + self.rules.stop_s)

    def say(self, event: Event) -> None:
        """Report, or keep it until the worker reads again."""
        self._unsaid += self._encode(event) + b"\n"
        self._flush()

    def _flush(self) -> None:
        while self._unsaid:
            try:
                self._unsaid = self._unsaid[os.write(self._events, self._unsaid) :]
            except BlockingIOError:
                return
            except OSError:
                self._unsaid = b""

    def _begin(self, order: Begin) -> None:
        """Start a command in a group of its own; not one whose time is over, nor a second one of an item."""
        if order.item in self.groups or boot_s() >= order.until_s:
            self.say(Emptied(order.item, order.epoch, None))
            return
        # A signal for a child that is not yet the command must wait: the watchdog's own handlers would eat it.
        signal.pthread_sigmask(signal.SIG_BLOCK, _DEAF_TO)
        pid = os.fork()
        if pid == 0:
            _become(order)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _DEAF_TO)
        with suppress(OSError):  # Both sides set it, whoever comes first; it may have ended already.
            os.setpgid(pid, pid)
        self.groups[order.item] = Group(order.item, order.epoch, pid, order.until_s)
        self.say(Begun(order.item, order.epoch, pid))

    def _reap(self) -> None:
        """Collect everybody who has ended: leaders, and orphans that were adopted."""
        leaders = {group.pid: group for group in self.groups.values() if not group.ended}
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                group = leaders.get(ended[0])
                if group is not None:
                    group.ended, group.code = True, os.waitstatus_to_exitcode(ended[1])
                    # What its leader leaves behind has no purpose any more.
                    group.asked = True
                    group.limit_s = min(group.limit_s, boot_s() + self.rules.stop_s)
                    signal_group(group.pid, signal.SIGTERM)


def _become(order: Begin) -> None:
    """Turn this new process into the command; only what is safe between fork and exec."""
    try:
        os.setpgid(0, 0)
        prctl(_DEATH_SIGNAL, signal.SIGKILL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        for number in (*_DEAF_TO, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _DEAF_TO)
        # The worker's own key is nobody else's.
        inherited = {name: value for name, value in os.environ.items() if name != "POISE_TOKEN"}
        os.execvpe(order.command[0], order.command, {**inherited, **order.environment})
    except OSError as error:
        os.write(2, f"poise: {order.command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _deafen(wake: int) -> None:
    """Let no signal that was meant for the worker end its watchdog."""
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in _DEAF_TO:
        signal.signal(number, lambda *_: None)


def watch(orders: int, events: int) -> None:
    """Serve one worker until it is gone and all its groups are empty."""
    reading, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    adopt_orphans()
    _deafen(wake)
    dog, heard = Watchdog(events), b""
    decode = msgspec.json.Decoder(Command).decode
    poll = select.poll()
    poll.register(orders, select.POLLIN)
    poll.register(reading, select.POLLIN)
    while dog.groups or not dog.alone:
        sleep_s = dog.look(boot_s())
        ready = {descriptor for descriptor, _ in poll.poll(sleep_s * 1000)}
        if reading in ready:
            os.read(reading, _READ_MAX)
        if orders in ready:
            text = os.read(orders, _READ_MAX)
            *lines, heard = (heard + text).split(b"\n")
            for line in lines:
                dog.take(decode(line))
            if not text:
                poll.unregister(orders)
                dog.leave_alone(boot_s())


if __name__ == "__main__":
    watch(0, int(sys.argv[1]))
