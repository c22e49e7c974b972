"""Lines of `baton chat` are edited in the terminal: what the model is asked is what is seen, and the terminal is left as it was."""
import concurrent.futures
import fcntl
import os
import pathlib
import select
import signal
import struct
import termios
import threading
import types

import grpc
import pytest
from client import pb, pb_grpc
from harness import BATON, wait_until
from terminal import Terminal

LEFT, RIGHT, UP, DOWN, HOME, END, DELETE, WORD_LEFT = "\x1b[D", "\x1b[C", "\x1b[A", "\x1b[B", "\x1b[H", "\x1b[F", "\x1b[3~", "\x1b[1;5D"
MAX_CHARACTERS = 262143


class Listener(pb_grpc.BatonServicer):
    """Says "ok"; where it is asked to wait, until it is told to go away."""
    def __init__(self):
        self.asked = []

    def Generate(self, asked, context):  # noqa: N802
        self.asked.append(asked.text)
        gone = threading.Event()
        if not context.add_callback(gone.set):
            return
        yield pb.GenerateResponse(delta=pb.Delta(text="ok", token_ids=[1], first_index=0))
        if asked.text.endswith("wait\n"):
            assert gone.wait(60)
        yield pb.GenerateResponse(finished=pb.Finished(reason=pb.FINISH_REASON_EOS))
        yield pb.GenerateResponse(usage=pb.Usage(prompt_tokens=1, completion_tokens=1))


@pytest.fixture
def world(tmp_path):
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    model = Listener()
    pb_grpc.add_BatonServicer_to_server(model, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    environment = dict(os.environ, XDG_RUNTIME_DIR=str(tmp_path), HOME=str(tmp_path))
    yield types.SimpleNamespace(environment=environment, model=model, address=address, state=tmp_path / "state")
    server.stop(None).wait()


class Chat(Terminal):
    def __init__(self, world, *flags, **environment):
        super().__init__(world, "chat", "--plain", "--server", world.address, *flags, **{"XDG_STATE_HOME": str(world.state), **environment})
        self.model = world.model
        self.wait_for_prompt(0)

    def wait_for_prompt(self, begin):
        self.read_until(r"> $", begin)
        wait_until("keys come one by one", self.takes_keys, 20)

    def says(self, keys):
        """Returns the model's prompt after these keys and Enter, from a transcript of its own."""
        count, begin = len(self.model.asked), len(self.text)
        self.type(keys + "\r")
        self.read_until(r"ok\r\n\[1 \+ 1 tokens.*> $", begin)
        assert len(self.model.asked) == count + 1
        begin = len(self.text)
        self.type("/reset\r")
        self.read_until(r"The transcript is empty\..*> $", begin)
        wait_until("keys come one by one", self.takes_keys, 20)
        return self.model.asked[-1]

    def leaves_out(self, keys):
        """With Enter; it goes on with an empty line."""
        begin = len(self.text)
        self.type(keys + "\r")
        self.read_until(f"a line of over {MAX_CHARACTERS} characters is left out", begin)
        self.wait_for_prompt(begin)

    def ends(self, code=0):
        assert self.process.wait(30) == code, self.text
        assert self.takes_lines()
        while select.select([self.master], [], [], 0)[0] and (text := self.read()):
            self.text += text
        assert self.text.rfind("\x1b[?2004l") > self.text.rfind("\x1b[?2004h"), "pastes are as they were"


def test_keys_edit_the_line(world):
    """Also where the locale knows no UTF-8."""
    chat = Chat(world, LC_ALL="C")
    assert chat.says("ac" + LEFT + "b") == "abc\n"
    assert chat.says("bc" + HOME + "a" + END + "d" + "\x7f") == "abc\n"
    assert chat.says("xabc" + "\x01" + DELETE) == "abc\n"
    assert chat.says("one three" + WORD_LEFT + "two ") == "one two three\n"
    assert chat.says("héllo wörld — 日本語🙂" + LEFT * 2 + "\x7f" + "é") == "héllo wörld — 日é語🙂\n"
    assert "^[" not in chat.text
    chat.type("\x04")
    chat.ends()


def test_keys_of_vi(world):
    """As one's ~/.editrc may choose: in two modes, with Escape between them, and our own keys in both."""
    (pathlib.Path(world.environment["HOME"]) / ".editrc").write_text("bind -v\n")
    chat = Chat(world)
    assert chat.says("one three" + "\x1bb" + "itwo ") == "one two three\n"
    assert chat.says("héllo wörld" + "\x1b0x" + "A!") == "éllo wörld!\n"
    assert chat.says("on" + paste("e\r\rtwo") + "!") == "one\n\ntwo!\n", "in the mode that it was"
    assert chat.says("on" + "\x1b" + paste("e\r\rtwo")) == "oe\n\ntwon\n"
    assert chat.says(UP * 2 + "!") == "oe\n\ntwon!\n", "behind /reset"
    assert chat.says("new" + UP * 3 + DOWN * 3) == "new\n"
    assert chat.says("\x12wör") == "éllo wörld!\n"
    assert chat.says("\x1bkk" + "A!") == "éllo wörld!!\n"
    assert chat.says("\x1b/one two") == "one two three\n"
    chat.leaves_out("x" + paste("x" * MAX_CHARACTERS))
    chat.type("\x04")
    chat.ends()


def test_a_key_of_vi_may_come_in_parts(world):
    """Else what is pasted would be run as commands."""
    (pathlib.Path(world.environment["HOME"]) / ".editrc").write_text("bind -v\n")
    chat = Chat(world)
    key = "\x1b[200~"
    for parts in range(2, len(key)):
        begin = len(chat.text)
        chat.type("on" + key[:parts])
        chat.read_until(r"on", begin)
        chat.takes_all()
        assert chat.says(f"{key[parts:]}e\r\rtwo\x1b[201~!") == "one\n\ntwo!\n"
    chat.type("\x04")
    chat.ends()


def test_bytes_that_are_no_characters_are_passed_over(world):
    chat = Chat(world)
    os.write(chat.master, b"a\xff\xc3b\xe2\x82c\xe2\x82\xac")
    assert chat.says("") == "abc€\n"


def test_lines_come_again(world):
    """With up and down, by search, and at the next start; a line that came twice is there once."""
    chat = Chat(world)
    for line in ("first one", "second", "second"):
        chat.says(line)
    assert chat.says(UP * 2) == "second\n", "behind /reset"
    chat.type("\x04")
    chat.ends()
    kept = world.state / "baton/chat_history"
    assert kept.stat().st_mode & 0o777 == 0o600 and kept.parent.stat().st_mode & 0o777 == 0o700
    assert os.listdir(kept.parent) == [kept.name]
    again = Chat(world)
    assert again.says("\x12first") == "first one\n"
    assert again.says("new" + UP * 3 + DOWN * 3) == "new\n", "what was begun is not lost"
    os.kill(again.process.pid, signal.SIGTERM)
    again.ends()
    assert kept.read_text().splitlines()[-2:] == ["new", "/reset"], "they are kept on every way out"


def paste(text):
    return f"\x1b[200~{text}\x1b[201~"


@pytest.mark.parametrize("count", [1022, 1024, 5000])
def test_a_long_line_is_whole_behind_other_lines(world, count):
    chat = Chat(world)
    chat.says("hello")
    for keys in (UP + DOWN, UP * 3 + DOWN * 5, "\x12hel\x07", "\x12nowhere\x12\x07", "\x10\x0e", DOWN, "\x1bp\x1bn"):
        text = ("ab" * count)[:count - 1] + "é"
        assert chat.says(paste(text) + keys) == text + "\n"
    chat.type("\x04")
    chat.ends()


def test_a_search(world):
    chat = Chat(world)
    for line in ("the first one", "a second one", "déjà vu", "x" * 3000, "third"):
        chat.says(line)
    assert chat.says("\x12one") == "a second one\n"
    assert chat.says("\x12the\x12") == "the first one\n", "not below the oldest"
    assert chat.says("\x12déjé\x7fà") == "déjà vu\n"
    assert chat.says("\x12sec" + LEFT + "!") == "a second on!e\n", "the key that ends it does its work"
    assert chat.says("\x12ird\x05s") == "thirds\n"
    assert chat.says("\x12xxx" + END + "y") == "x" * 3000 + "y\n"
    assert chat.says("new" + UP + "\x12vu\x07\x07" + DOWN) == "new\n"
    begin = len(chat.text)
    chat.type("\x12nowhere")
    chat.read_until(r"\(in no line\) nowhere: new$", begin)
    begin = len(chat.text)
    chat.type("\x03")
    chat.wait_for_prompt(begin)
    assert chat.says("on") == "on\n"
    chat.type("\x04")
    chat.ends()


def test_lines_longer_than_are_kept_may_be_in_the_file(world):
    (world.state / "baton").mkdir(parents=True)
    (world.state / "baton/chat_history").write_text("_HiStOrY_V2_\nshort\n" + "x" * 20000 + "\n" + "y" * (MAX_CHARACTERS + 1) + "\n")
    chat = Chat(world)
    assert chat.says("\x12xx") == "x" * 20000 + "\n"
    chat.leaves_out(UP * 4)


def test_keys_that_make_a_line_too_long(world):
    chat = Chat(world)
    for keys in ("\x1b600000€", "x" + paste("x" * 200000) + "\x15\x19\x19"):
        chat.leaves_out(keys)
    assert chat.says("on") == "on\n"
    chat.type("\x04")
    chat.ends()


def test_a_mark_in_a_line_that_is_gone(world):
    """libedit goes to it, and would write behind its buffer."""
    chat = Chat(world)
    assert chat.says("x" * 1000 + " y\x17\x19\x15a\x18\x18" + "b" * 100) == "a" + "b" * 100 + "\n"
    chat.type("\x04")
    chat.ends()


def test_history_that_is_not_wanted_or_has_no_place(world):
    chat = Chat(world, "--no-history")
    chat.says("secret")
    assert chat.says(UP * 2) == "secret\n"
    chat.type("\x04")
    chat.ends()
    assert not world.state.exists()
    world.state.write_text("no folder")
    chat = Chat(world)
    chat.says("x")
    chat.type("\x04")
    chat.ends()
    assert "lines are not kept for the next start" in chat.text
    chat = Chat(world, XDG_STATE_HOME="relative")
    chat.says("x")
    chat.type("\x04")
    chat.ends()
    assert (pathlib.Path(world.environment["HOME"]) / ".local/state/baton/chat_history").is_file()


def test_ctrl_c_clears_the_line_or_stops_the_answer(world):
    chat = Chat(world)
    begin = len(chat.text)
    chat.type("never said" + LEFT * 3)
    chat.read_until("never said", begin)
    begin = len(chat.text)
    chat.type("\x03")
    chat.wait_for_prompt(begin)
    assert "Ctrl-D ends" not in chat.text[begin:]
    begin = len(chat.text)
    chat.type("\x03")
    chat.read_until(r"\(/quit or Ctrl-D ends\)", begin)
    chat.wait_for_prompt(begin)
    begin = len(chat.text)
    chat.type("wait\r")
    chat.read_until("ok", begin)
    assert chat.takes_lines(), "the terminal is others' meanwhile"
    chat.type("\x03")
    chat.read_until(r"\[stopped\].*> $", begin)
    wait_until("keys come one by one", chat.takes_keys, 20)
    assert chat.says("on") == "wait\nok\non\n"
    chat.type("\x04")
    chat.ends()


def test_what_is_typed_during_an_answer_is_there_after_it(world):
    for keys in ("/quit\r", "\x04"):
        chat = Chat(world)
        begin = len(chat.text)
        chat.type("wait\r")
        chat.read_until("ok", begin)
        chat.type(keys)
        os.kill(chat.process.pid, signal.SIGINT)  # Ctrl-C would drop what is typed
        chat.ends()


def test_what_is_pasted_is_one_text(world):
    chat = Chat(world)
    assert chat.says("\x1b[200~def f():\r\treturn 1\x1b[31m\r\r\x1b[201~ # " + LEFT) == "def f():\n\treturn 1[31m # \n"
    chat.leaves_out(paste("x" * (MAX_CHARACTERS + 1)))
    assert chat.says("on") == "on\n"
    chat.type("\x04")
    chat.ends()


def test_the_window_may_change_its_size(world):
    chat = Chat(world)
    chat.type("x" * 70)
    chat.read_until("x" * 30)
    for columns in (40, 20, 100):
        begin = len(chat.text)
        fcntl.ioctl(chat.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        chat.read_until(r"\r\x1b\[J> x", begin)
    assert chat.says(HOME + "A") == "A" + "x" * 70 + "\n"
    chat.type("\x04")
    chat.ends()


def test_tabs_and_control_characters_have_their_columns(world):
    """A line that is drawn again begins in the row of its prompt."""
    chat = Chat(world)
    for text in ("\t" * 12, "\x16\x01" * 50):
        begin = len(chat.text)
        chat.type((paste(text) if text[0] == "\t" else text) + "z")
        chat.read_until("z", begin)
        begin = len(chat.text)
        fcntl.ioctl(chat.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        os.kill(chat.process.pid, signal.SIGWINCH)
        chat.read_until(r"\x1b\[1A\r\x1b\[J>", begin)
        begin = len(chat.text)
        chat.type("\x03")
        chat.wait_for_prompt(begin)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signals_give_the_terminal_back(world, number):
    chat = Chat(world)
    chat.type("abc")
    chat.read_until("abc")
    os.kill(chat.process.pid, number)
    chat.ends()
    chat = Chat(world)
    chat.type("wait\r")
    chat.read_until("ok")
    os.kill(chat.process.pid, number)
    chat.ends()


def test_ctrl_z_gives_the_terminal_back_until_the_chat_goes_on(world):
    """To a shell that doesn't set it itself."""
    command = f"set -m; '{BATON}' chat --plain --server {world.address}; echo stop''ped; read line; fg; echo en''ded"
    terminal = Terminal(world, "-c", command, program="sh")
    terminal.read_until(r"> $")
    wait_until("keys come one by one", terminal.takes_keys, 20)
    terminal.type("abc")
    terminal.read_until(r"> abc$")
    terminal.type("\x1a")
    terminal.read_until("stopped")
    assert terminal.takes_lines()
    terminal.type("\n")
    terminal.read_until(r"stopped.*> abc$")
    wait_until("keys come one by one", terminal.takes_keys, 20)
    terminal.type(LEFT + "x\r")
    terminal.read_until(r"ok\r\n.*> $")
    wait_until("keys come one by one", terminal.takes_keys, 20)
    assert world.model.asked == ["abxc\n"]
    terminal.type("\x04")
    terminal.read_until("ended")
    assert terminal.process.wait(30) == 0 and terminal.takes_lines()


def test_a_chat_that_somebody_else_stopped_sets_the_terminal_again(world):
    chat = Chat(world)
    chat.type("abc")
    chat.read_until("abc")
    os.kill(chat.process.pid, signal.SIGSTOP)
    settings = termios.tcgetattr(chat.master)
    settings[3] |= termios.ICANON | termios.ECHO
    termios.tcsetattr(chat.master, termios.TCSANOW, settings)
    begin = len(chat.text)
    os.kill(chat.process.pid, signal.SIGCONT)
    chat.read_until("> abc$", begin)
    wait_until("keys come one by one", chat.takes_keys, 20)
    assert chat.says(LEFT + "x") == "abxc\n"


def test_a_terminal_without_escapes_gets_none(world):
    chat = Terminal(world, "chat", "--plain", "--server", world.address, TERM="dumb")
    chat.read_until(r"> $")
    chat.type(LEFT + "x\n")
    chat.read_until(r"the line is left out, write it again\.")
    assert "\x1b" not in chat.text and not world.model.asked
    chat.type("\x04")
    assert chat.process.wait(30) == 0
