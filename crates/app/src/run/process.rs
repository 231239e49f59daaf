//! One attempt: a process of its own group, its output, and its end.
//!
//! Standard input is empty, and standard output and standard error are one pipe, so that lines stay
//! in their order. The process leads a group: a signal for the attempt reaches everything that it
//! started, and Ctrl-C at the terminal reaches only Tidegate.

use std::ffi::{OsStr, OsString};
use std::io::{self, PipeReader};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;
use std::{env, fs};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::Child;
use tokio::time::{Instant, sleep_until, timeout};

use super::engine::{AttemptEnd, Runner};
use super::guard::Guard;
use super::item::Item;
use super::logs::{AttemptLog, Logs};
use super::output::{LiveOutput, Tail};
use super::rules::Exit;

/// A command with a placeholder for the item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// The program's file, looked up once.
    program: PathBuf,
    /// The program as typed.
    name: OsString,
    arguments: Vec<OsString>,
}

/// Why a command cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// There is none.
    #[error("there is no command, expected one after `--`")]
    Missing,
    /// The item would be the program.
    #[error("the command itself is `{{}}`, expected a program")]
    ProgramIsItem,
    /// The item is nowhere in it.
    #[error("the command has no argument `{{}}`, which stands for the item")]
    NoPlaceholder,
    /// The placeholder is only a part of an argument.
    #[error("`{{}}` is a part of `{0}`, expected an argument of its own")]
    PartOfArgument(String),
    /// There is no such program.
    #[error("there is no program `{0}`")]
    NotFound(String),
    /// The file is no program.
    #[error("`{0}` may not be executed")]
    NotExecutable(String),
}

const PLACEHOLDER: &str = "{}";

impl CommandLine {
    /// The command, of which every argument `{}` stands for the item.
    ///
    /// # Errors
    ///
    /// Why it cannot be run.
    pub fn new(words: Vec<OsString>) -> Result<Self, CommandError> {
        let mut words = words.into_iter();
        let name = words.next().ok_or(CommandError::Missing)?;
        let arguments: Vec<OsString> = words.collect();
        if name == PLACEHOLDER {
            return Err(CommandError::ProgramIsItem);
        }
        if !arguments.iter().any(|argument| argument == PLACEHOLDER) {
            let mut parts = arguments.iter().map(|argument| argument.to_string_lossy());
            return Err(
                match parts.find(|argument| argument.contains(PLACEHOLDER)) {
                    Some(part) => CommandError::PartOfArgument(part.into_owned()),
                    None => CommandError::NoPlaceholder,
                },
            );
        }
        Ok(Self {
            program: find_program(&name)?,
            name,
            arguments,
        })
    }

    /// The command as typed.
    pub fn words(&self) -> impl Iterator<Item = String> {
        let words = std::iter::once(&self.name).chain(&self.arguments);
        words.map(|word| word.to_string_lossy().into_owned())
    }

    fn command(&self, item: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg0(&self.name);
        command.args(
            self.arguments
                .iter()
                .map(|argument| match argument == PLACEHOLDER {
                    true => OsStr::new(item),
                    false => argument,
                }),
        );
        command
    }
}

/// Searches PATH once instead of at every attempt.
fn find_program(name: &OsStr) -> Result<PathBuf, CommandError> {
    let shown = || name.to_string_lossy().into_owned();
    if Path::new(name).components().count() > 1 {
        return match check_program(Path::new(name)) {
            Some(true) => Ok(name.into()),
            Some(false) => Err(CommandError::NotExecutable(shown())),
            None => Err(CommandError::NotFound(shown())),
        };
    }
    let path = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut error = CommandError::NotFound(shown());
    for folder in env::split_paths(&path) {
        let file = folder.join(name);
        match check_program(&file) {
            Some(true) => return Ok(file),
            Some(false) => error = CommandError::NotExecutable(shown()),
            None => {}
        }
    }
    Err(error)
}

/// Whether a file can be executed; `None` if it does not exist.
fn check_program(file: &Path) -> Option<bool> {
    let metadata = fs::metadata(file).ok()?;
    Some(metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Runs each attempt as a process.
#[derive(Debug)]
pub(super) struct Processes {
    command: CommandLine,
    timeout: Option<Duration>,
    logs: Option<Logs>,
    guard: Option<Guard>,
}

impl Processes {
    pub(super) fn new(
        command: CommandLine,
        timeout: Option<Duration>,
        logs: Option<Logs>,
        guard: Option<Guard>,
    ) -> Self {
        Self {
            command,
            timeout,
            logs,
            guard,
        }
    }

    fn spawn(&self, item: &Item) -> io::Result<(Group<'_>, pipe::Receiver)> {
        let (reader, writer) = io::pipe()?;
        let mut command = self.command.command(&item.text);
        command
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .process_group(0);
        let child = tokio::process::Command::from(command).spawn()?;
        let group = Group::new(child, self.guard.as_ref())?;
        Ok((group, receiver(reader)?))
    }
}

fn receiver(reader: PipeReader) -> io::Result<pipe::Receiver> {
    pipe::Receiver::from_owned_fd(OwnedFd::from(reader))
}

impl Runner for Processes {
    async fn attempt(&self, item: &Item, live: &LiveOutput) -> AttemptEnd {
        let log = self.logs.as_ref().map(|logs| logs.attempt(item));
        let mut output = match log.transpose() {
            Ok(log) => Output::new(live, log),
            Err(error) => return AttemptEnd::NotStarted(error),
        };
        let (mut group, mut pipe) = match self.spawn(item) {
            Ok(spawned) => spawned,
            Err(error) => return AttemptEnd::NotStarted(error),
        };
        let mut killing = Killing::new(self.timeout);
        let status = loop {
            tokio::select! {
                // A program that has ended has closed the pipe, too: read that first.
                biased;
                is_open = output.read(&mut pipe), if output.is_open => output.is_open = is_open,
                status = group.child.wait() => break status,
                () = sleep_until(killing.next), if killing.is_on => killing.kill(&group),
            }
        };
        if output.is_open {
            // A process that it started still runs.
            output.read_rest(&mut pipe, &group).await;
        }
        group.is_over = true;
        let exit = match status {
            Ok(_) if killing.has_begun => Exit::TimedOut,
            Ok(status) => exit(status),
            Err(error) => return AttemptEnd::NotStarted(error),
        };
        let output = output.tail.into_bytes();
        AttemptEnd::Exited { exit, output }
    }
}

fn exit(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Code(-1),
    }
}

/// A process and everything that it started. Dropped before its end, it gets SIGTERM, and the guard
/// kills what is left of it five seconds later; without a guard it is killed at once.
struct Group<'g> {
    child: Child,
    pid: Pid,
    guard: Option<&'g Guard>,
    is_over: bool,
}

impl<'g> Group<'g> {
    fn new(child: Child, guard: Option<&'g Guard>) -> io::Result<Self> {
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the process has no id"))?;
        if let Some(guard) = guard {
            guard.add(pid);
        }
        Ok(Self {
            child,
            pid,
            guard,
            is_over: false,
        })
    }

    fn signal(&self, signal: Signal) {
        // Nothing is left of a group that cannot be found.
        _ = kill_process_group(self.pid, signal);
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        match self.guard {
            Some(guard) if self.is_over => guard.remove(self.pid),
            Some(_) => self.signal(Signal::TERM),
            None if self.is_over => {}
            None => self.signal(Signal::KILL),
        }
    }
}

/// When an attempt that takes too long is ended.
struct Killing {
    is_on: bool,
    has_begun: bool,
    next: Instant,
}

impl Killing {
    fn new(timeout: Option<Duration>) -> Self {
        let now = Instant::now();
        let next = timeout.and_then(|timeout| now.checked_add(timeout));
        Self {
            is_on: next.is_some(),
            has_begun: false,
            next: next.unwrap_or(now),
        }
    }

    fn kill(&mut self, group: &Group<'_>) {
        match self.has_begun {
            false => {
                group.signal(Signal::TERM);
                self.next = Instant::now() + KILL_AFTER;
            }
            true => {
                group.signal(Signal::KILL);
                self.is_on = false;
            }
        }
        self.has_begun = true;
    }
}

/// How long a program may take to end after SIGTERM: time to remove its temporary files.
pub(super) const KILL_AFTER: Duration = Duration::from_secs(5);

/// What an attempt prints.
struct Output<'a> {
    live: &'a LiveOutput,
    tail: Tail,
    log: Option<AttemptLog>,
    is_open: bool,
}

impl<'a> Output<'a> {
    fn new(live: &'a LiveOutput, log: Option<AttemptLog>) -> Self {
        Self {
            live,
            tail: Tail::default(),
            log,
            is_open: true,
        }
    }

    /// Reads what there is. Is there more?
    async fn read(&mut self, pipe: &mut pipe::Receiver) -> bool {
        let mut buffer = [0; 4096];
        match pipe.read(&mut buffer).await {
            Ok(0) | Err(_) => false,
            Ok(length) => {
                let bytes = buffer.get(..length).unwrap_or(&[]);
                self.tail.push(bytes);
                self.live.push(bytes);
                // A full disk must not fail the attempt.
                if let Some(log) = &mut self.log
                    && log.write(bytes).is_err()
                {
                    self.log = None;
                }
                true
            }
        }
    }

    /// Reads what processes of the group print after its leader has ended, and ends them if they
    /// go on.
    async fn read_rest(&mut self, pipe: &mut pipe::Receiver, group: &Group<'_>) {
        for (signal, wait) in [
            (Signal::TERM, 100),
            (Signal::KILL, 1000),
            (Signal::KILL, 100),
        ] {
            let rest = async { while self.read(pipe).await {} };
            if timeout(Duration::from_millis(wait), rest).await.is_ok() {
                return;
            }
            group.signal(signal);
        }
    }
}
