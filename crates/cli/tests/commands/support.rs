//! Runs the real binary and shows its exit code, stdout and stderr.

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// The binary, without the settings of the environment.
pub(crate) fn tidegate(args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .args(args.split_whitespace())
        .env("NO_COLOR", "1")
        .env("COLUMNS", "80")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let settings =
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TIDEGATE_"));
    for (name, _) in settings {
        command.env_remove(name);
    }
    command
}

/// Runs it with `input` on stdin.
pub(crate) fn output(args: &str, input: &[u8]) -> Output {
    let mut child = tidegate(args).spawn().unwrap();
    // It may stop reading at a bad line, before the end of what is written.
    _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// Runs it with `input` on stdin and shows exit code, stdout and stderr.
pub(crate) fn run(args: &str, input: &str) -> String {
    shown(&output(args, input.as_bytes()))
}

pub(crate) fn shown(output: &Output) -> String {
    let mut shown = format!("exit {}\n", output.status.code().unwrap());
    for (name, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
        let text = std::str::from_utf8(bytes).unwrap();
        if !text.is_empty() {
            shown.push_str(&format!("--- {name}\n{text}"));
        }
    }
    shown
}

/// What a command wrote to a terminal, and its exit code.
pub(crate) struct Screen {
    pub(crate) exit: i32,
    pub(crate) text: String,
}

/// Runs a command on a terminal of so many columns, made by Python's `pty`.
pub(crate) fn in_terminal(columns: u16, command: &Command) -> Screen {
    let mut terminal = Command::new("python3");
    terminal
        .args(["-c", IN_TERMINAL, &columns.to_string()])
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => terminal.env(name, value),
            None => terminal.env_remove(name),
        };
    }
    let output = terminal.env("TERM", "xterm").output().unwrap();
    assert!(output.stderr.is_empty(), "{}", shown(&output));
    Screen {
        exit: output.status.code().unwrap(),
        text: String::from_utf8(output.stdout)
            .unwrap()
            .replace("\r\n", "\n"),
    }
}

const IN_TERMINAL: &str = "
import fcntl, os, pty, struct, sys, termios
columns, command = int(sys.argv[1]), sys.argv[2:]
child, terminal = pty.fork()
if child == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', 24, columns, 0, 0))
    os.execv(command[0], command)
while True:
    try:
        data = os.read(terminal, 65536)
    except OSError:
        break
    if not data:
        break
    sys.stdout.buffer.write(data)
sys.stdout.flush()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
";
