//! Settings: from a file, the environment and flags into types that cannot be wrong.
//!
//! A file is read into a tree in which everything knows its place (`document`); the environment
//! and then the flags are laid over it. The shape is checked against one table of all settings
//! (`table`, `shape`). Then every section is read into its type (`reader`): values are judged once,
//! by the policy that uses them or by a function in `value`. No step stops at a problem. Either
//! there is none and [`Settings`] come out, or all of them do, each with its place.
//!
//! Serde is not used: it stops at the first problem and loses the place of contradictions between
//! two values.

mod default_file;
mod environment;
mod gates;
mod http;
mod operation;
mod pool;
mod reader;
mod reference;
mod rule;
mod schema;
mod secret;
mod server;
mod shape;
mod surroundings;
mod table;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use policy::backoff::{BackoffOptions, BackoffSettings};
use policy::budget::{BudgetOptions, BudgetSettings};
use policy::failure_queue::{FailureQueueOptions, FailureQueueSettings};
use policy::gate::GateSettings;
use policy::hosts::Hosts;
use policy::poll::{PollOptions, PollSettings};
use policy::preset::Preset;
use sim::written::{document, problem};
use tidegate::HostSettings;

pub use self::default_file::DEFAULT_FILE;
pub use self::environment::{ADMIN_TOKEN_VARIABLE, CONFIG_VARIABLE, LOG_VARIABLE};
pub use self::http::{Http, Jobs, Trails};
pub use self::operation::{Credential, DEFAULT_OPERATION, OperationType, Refresh};
pub use self::pool::{Endpoint, Pool};
pub(crate) use self::pool::{endpoint_header, endpoint_name};
pub use self::problem::{Place, Problem};
pub use self::reference::reference;
pub use self::schema::schema;
pub(crate) use self::secret::follow;
pub use self::secret::{Secret, SecretPattern};
pub use self::server::{Client, Forward, Network, Server, Storage};
pub(crate) use self::surroundings::PlainFiles;
pub use self::surroundings::{Process, Surroundings};
pub use self::value::Size;
pub(crate) use self::value::{http_url, shown_url};

use self::operation::Names;
use self::reader::{Reader, Section};

/// Everything that can be set, whole and without contradictions.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Where Tidegate listens.
    pub server: Server,
    /// What several machines share.
    pub storage: Storage,
    /// Gates, for every key and for single hosts.
    pub gates: Hosts<HostSettings>,
    /// Backoffs by name: the presets, changed or not, and those that were added.
    pub backoffs: BTreeMap<String, BackoffSettings>,
    /// Pools by name.
    pub pools: BTreeMap<String, Pool>,
    /// HTTP_PROXY mode.
    pub forward: Forward,
    /// What may be dialled.
    pub network: Network,
    /// Who may use the data plane, by name.
    pub clients: BTreeMap<String, Client>,
    /// Times and sizes of single requests.
    pub http: Http,
    /// How many retries there may be, for all requests together.
    pub retry_budget: BudgetSettings,
    /// Decision trails.
    pub trails: Trails,
    /// `tidegate run`.
    pub run: FailureQueueSettings,
    /// `tidegate poll`.
    pub poll: PollSettings,
    /// Types of operations by name; `default` is always there.
    pub operations: BTreeMap<String, OperationType>,
    /// Credentials by name.
    pub credentials: BTreeMap<String, Credential>,
    /// Status requests of jobs.
    pub jobs: Jobs,
    /// References to secrets that the settings themselves name: `env:NAME`, `file:PATH`.
    pub references: BTreeSet<String>,
}

/// What settings are read from; each lies over the one before.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The file's name for messages, and its bytes.
    pub file: Option<(String, Vec<u8>)>,
    /// Values of flags.
    pub flags: Vec<Flag>,
}

/// A setting given by a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// The flag as it was typed, for messages: `--listen`.
    pub name: String,
    /// The setting's path: `server.listen`, `gate."api.example.com".max_rate`.
    pub path: String,
    /// Its value, as text of any kind; a list has commas between its parts.
    pub value: String,
}

impl Settings {
    /// Reads settings from `sources` and the environment in `surroundings`.
    ///
    /// # Errors
    ///
    /// Every problem there is, in the order of the file.
    pub fn load(sources: &Sources, surroundings: &dyn Surroundings) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut root = document::Table::default();
        if let Some((name, bytes)) = &sources.file {
            let parsed = document::parse(name, bytes, &mut problems);
            if !parsed.is_whole {
                return Err(sorted(problems));
            }
            root = parsed.table;
        }
        environment::apply(&mut root, &surroundings.variables(), &mut problems);
        apply_flags(&mut root, &sources.flags, &mut problems);
        shape::check(&mut root, &table::ROOT, "", &mut problems);
        let reader = Reader::new(surroundings, problems);
        let settings = Self::read(&Section::root(&reader, &root));
        let problems = reader.problems();
        if problems.is_empty() {
            Ok(settings)
        } else {
            Err(sorted(problems))
        }
    }

    /// Reads only `[server]`, for whoever asks a running server: the rest, secrets above all, may
    /// not be there for them.
    ///
    /// # Errors
    ///
    /// Every problem with that section, or with the file as a whole.
    pub fn load_server(
        sources: &Sources,
        surroundings: &dyn Surroundings,
    ) -> Result<Server, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut root = document::Table::default();
        if let Some((name, bytes)) = &sources.file {
            let parsed = document::parse(name, bytes, &mut problems);
            if !parsed.is_whole {
                return Err(sorted(problems));
            }
            root = parsed.table;
        }
        environment::apply(&mut root, &surroundings.variables(), &mut problems);
        shape::check(&mut root, &table::ROOT, "", &mut problems);
        let reader = Reader::new(surroundings, problems);
        let server = Server::read(&Section::root(&reader, &root).section("server"));
        let mut problems = reader.problems();
        problems.retain(|problem| problem.key.starts_with("server"));
        if problems.is_empty() {
            Ok(server)
        } else {
            Err(sorted(problems))
        }
    }

    /// Reads the bytes of a settings file by its path.
    ///
    /// # Errors
    ///
    /// The one problem that it cannot be read.
    pub fn read_file(
        path: &Path,
        surroundings: &dyn Surroundings,
    ) -> Result<(String, Vec<u8>), Problem> {
        let name = path.display().to_string();
        match surroundings.read(path) {
            Ok(bytes) => Ok((name, bytes)),
            Err(error) => {
                let what = format!("cannot read the settings: {error}");
                Err(Problem::about(&Place::Unread(name), "", what))
            }
        }
    }

    /// The settings of the gate of a host, in its normalised form.
    pub fn gate_for(&self, host: &str) -> &GateSettings {
        &self.gates.find(host).gate
    }

    /// Whether the admin API may name `reference`: one that the settings name themselves, or one that
    /// `server.secrets` allows.
    pub fn allows_reference(&self, reference: &str) -> bool {
        self.references.contains(secret::split_word(reference).1)
            || self
                .server
                .secrets
                .iter()
                .any(|pattern| pattern.matches(reference))
    }

    /// The type of an operation; one that has no section is like `default`.
    pub fn operation(&self, name: &str) -> &OperationType {
        let default = || &self.operations[DEFAULT_OPERATION];
        self.operations.get(name).unwrap_or_else(default)
    }

    fn read(root: &Section<'_>) -> Self {
        let server_section = root.section("server");
        let server = Server::read(&server_section);
        let backoffs = read_backoffs(&root.section("backoff"));
        let credentials = operation::read_credentials(&root.section("credential"));
        let names = Names {
            backoffs: backoffs.keys().cloned().collect(),
            credentials: credentials.keys().cloned().collect(),
        };
        let pools = root.section("pool");
        let pools = pools
            .sections()
            .map(|(name, section)| (name.to_owned(), Pool::read(name, &section, &names)));
        Self {
            storage: Storage::read(&root.section("storage")),
            gates: gates::read(&root.section("gate")),
            pools: pools.collect(),
            forward: Forward::read(&root.section("forward")),
            network: Network::read(&root.section("network")),
            clients: server::read_clients(&root.section("client"), &server_section, server.listen),
            http: Http::read(&root.section("http")),
            retry_budget: read_budget(&root.section("retry_budget")),
            trails: Trails::read(&root.section("trails")),
            run: read_run(&root.section("run")),
            poll: read_poll(&root.section("poll")),
            operations: operation::read_types(&root.section("operation"), &names),
            jobs: Jobs::read(&root.section("jobs")),
            server,
            backoffs,
            credentials,
            references: root.reader.references(),
        }
    }
}

impl Default for Settings {
    /// What holds when nothing is written.
    fn default() -> Self {
        let reader = Reader::new(&Process, Vec::new());
        let settings = Self::read(&Section::root(&reader, &document::Table::default()));
        debug_assert!(reader.problems().is_empty(), "the defaults fit together");
        settings
    }
}

/// What is written goes over the preset of the same name, and over `standard` for a new one.
fn read_backoffs(section: &Section<'_>) -> BTreeMap<String, BackoffSettings> {
    let presets = Preset::ALL.iter();
    let mut backoffs: BTreeMap<String, BackoffSettings> = presets
        .map(|preset| (preset.as_str().to_owned(), preset.settings()))
        .collect();
    for (name, section) in section.sections() {
        let mut options = BackoffOptions::default();
        section.fill(BackoffOptions::NAMES, |name, text| options.set(name, text));
        let defaults = name.parse::<Preset>().unwrap_or_default().settings();
        if let Some(backoff) = section.built(options.build_over(defaults)) {
            backoffs.insert(name.to_owned(), backoff);
        } else {
            // Those who refer to it have not got its name wrong.
            backoffs.insert(name.to_owned(), Preset::default().settings());
        }
    }
    backoffs
}

fn read_budget(section: &Section<'_>) -> BudgetSettings {
    let mut options = BudgetOptions::default();
    section.fill(BudgetOptions::NAMES, |name, text| options.set(name, text));
    section.built(options.build()).unwrap_or_default()
}

fn read_run(section: &Section<'_>) -> FailureQueueSettings {
    let mut options = FailureQueueOptions::default();
    section.fill(FailureQueueOptions::NAMES, |name, text| {
        options.set(name, text)
    });
    section.built(options.build()).unwrap_or_default()
}

fn read_poll(section: &Section<'_>) -> PollSettings {
    let mut options = PollOptions::default();
    section.fill(PollOptions::NAMES, |name, text| options.set(name, text));
    section.built(options.build()).unwrap_or_default()
}

fn apply_flags(root: &mut document::Table, flags: &[Flag], problems: &mut Vec<Problem>) {
    for flag in flags {
        let place = Place::Flag(flag.name.clone());
        match split_path(&flag.path) {
            Some(path) => problems.extend(environment::set(root, &path, &flag.value, &place)),
            None => {
                let what = "expected a setting such as `gate.max_rate`";
                problems.push(Problem::about(&place, "", what));
            }
        }
    }
}

/// The parts of a path; those with dots are in quotes.
fn split_path(path: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut rest = path.trim();
    loop {
        let (part, tail) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => rest.split_at(rest.find('.').unwrap_or(rest.len())),
        };
        if part.is_empty() {
            return None;
        }
        parts.push(part.to_owned());
        if tail.is_empty() {
            return Some(parts);
        }
        rest = tail.strip_prefix('.')?;
    }
}

/// In the order of the file, then the environment, then the flags.
fn sorted(mut problems: Vec<Problem>) -> Vec<Problem> {
    problems.sort_by(|a, b| a.place.cmp(&b.place));
    problems
}

#[cfg(test)]
pub(crate) mod tests;
