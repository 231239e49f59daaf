//! Settings: from a file, the environment and flags into types that cannot be wrong.
//!
//! Each setting is defined once, next to the type that holds it (`policy::settings!`), and `sections`
//! puts the definitions into the tree of the file. The file is read into a tree of values with
//! locations ([`config`]); the environment and then flags replace values of it; names are checked
//! against `sections`; then every section is read into its type. No step stops at a problem: either
//! there is none and [`Settings`] come out, or all of them do, each with its location.

mod default_file;
mod environment;
mod forward;
mod gates;
mod http;
mod network;
mod operation;
mod pool;
mod reference;
mod rule;
mod schema;
mod secret;
mod sections;
mod server;
mod tls;
mod value;
mod variables;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use config::document::{self, Table, Value};
use config::{Context, Location, Reader};
use policy::backoff::{BackoffOptions, BackoffSettings};
use policy::budget::{BudgetOptions, BudgetSettings};
use policy::failure_queue::{FailureQueueOptions, FailureQueueSettings};
use policy::gate::GateSettings;
use policy::hosts::Hosts;
use policy::ladder::LadderOptions;
use policy::poll::{PollOptions, PollSettings};
use policy::preset::Preset;
use policy::setting::{Options, SettingErrors, Values};
use sim::replay::BaseOptions;
use tidegate::HostSettings;

pub use config::Problem;

pub use self::default_file::default_file;
pub(crate) use self::environment::PlainFiles;
pub use self::environment::{Environment, Process};
pub use self::forward::{DeniedHost, Forward};
pub use self::http::{Fetch, Http, Jobs, PoolTimeouts, Trails};
pub use self::network::{Network, ProxySettings};
pub use self::operation::{
    Credential, DEFAULT_OPERATION, OperationType, Refresh, TokenCommand, TokenEndpoint,
    WEBHOOK_OPERATION, Webhook,
};
pub use self::pool::{EndpointSettings, PoolSettings};
pub(crate) use self::pool::{
    endpoint_header, endpoint_name, header_fields, is_secret as is_secret_header,
};
pub use self::reference::reference;
pub use self::schema::schema;
pub(crate) use self::secret::follow;
pub use self::secret::{Secret, SecretPattern};
pub use self::server::{Client, Server, SharedGateSettings, Storage, Telemetry};
pub use self::tls::{Listeners, RunningServer};
pub use self::value::{ByteRate, Size};
pub(crate) use self::value::{http_url, shown_url};
pub use self::variables::{ADMIN_TOKEN_VARIABLE, CONFIG_VARIABLE, LOG_VARIABLE};

use self::forward::ForwardOptions;
use self::http::{FetchOptions, JobsOptions, TrailsOptions};
use self::secret::References;
use self::sections::ROOT;
use self::server::TelemetryOptions;

/// Everything that can be set, complete and without contradictions.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Where Tidegate listens.
    pub server: Server,
    /// TLS of both listeners.
    pub listeners: Listeners,
    /// How it is stored.
    pub storage: Storage,
    /// Gates, for every key and for single hosts.
    pub gates: Hosts<HostSettings>,
    /// Backoffs by name: the presets, changed or not, and those that were added.
    pub backoffs: BTreeMap<String, BackoffSettings>,
    /// Pools by name.
    pub pools: BTreeMap<String, PoolSettings>,
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
    /// Fetching and crawling.
    pub fetch: Fetch,
    /// Jobs.
    pub jobs: Jobs,
    /// Where traces are sent.
    pub telemetry: Telemetry,
    /// Headers of what is sent there.
    pub telemetry_headers: Vec<(String, Secret)>,
    /// References to secrets that the settings themselves name: `env:NAME`, `file:PATH`.
    pub references: BTreeSet<String>,
}

/// What is written about policies, by itself: defaults are not filled in.
#[derive(Clone, Debug)]
pub struct Policies {
    /// `[gate]`, `[backoff.*]`, `[run]` and `[poll]`.
    pub options: BaseOptions,
    /// `[pool.NAME.protection]` of every pool.
    pub protections: BTreeMap<String, LadderOptions>,
    /// `[gate]` with the locations of its values.
    pub gate: Table,
}

impl Policies {
    fn read(root: &Reader<'_>) -> Self {
        // Contradictions are found, too.
        gates::read(&root.table("gate"));
        let backoffs = root.table("backoff");
        let pools = root.table("pool");
        let gate = match root.node("gate").map(|node| &node.value) {
            Some(Value::Table(gate)) => gate.clone(),
            _ => Table::default(),
        };
        Self {
            options: BaseOptions {
                gate: Reader::root(&Context::default(), &gate, Location::Default).options(),
                backoffs: backoffs
                    .tables()
                    .map(|(name, reader)| (name.to_owned(), reader.options()))
                    .collect(),
                run: root.table("run").options(),
                poll: root.table("poll").options(),
                protection: LadderOptions::default(),
            },
            protections: pools
                .tables()
                .map(|(name, reader)| (name.to_owned(), reader.table("protection").options()))
                .collect(),
            gate,
        }
    }
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
    /// Reads settings from `sources` and the environment.
    ///
    /// # Errors
    ///
    /// Every problem there is, in the order of the file.
    pub fn load(sources: &Sources, environment: &dyn Environment) -> Result<Self, Vec<Problem>> {
        let (root, mut problems) = tree(sources, environment)?;
        ROOT.check_names(&root, "", &mut problems);
        let references = References::new(environment);
        let context = Context::new(&references, problems);
        let reader = Reader::root(&context, &root, Location::Default);
        let mut settings = Self::read(&reader);
        let problems = context.into_problems();
        if !problems.is_empty() {
            return Err(problems);
        }
        settings.references = references.into_found();
        Ok(settings)
    }

    /// Reads the sections with these names, for commands that need no others: what else is in the file
    /// may be wrong, or its secrets missing, and has its default here.
    ///
    /// # Errors
    ///
    /// Every problem with those sections, or with the file as a whole.
    pub fn load_sections(
        sources: &Sources,
        environment: &dyn Environment,
        sections: &[&str],
    ) -> Result<Self, Vec<Problem>> {
        let (mut root, mut problems) = tree(sources, environment)?;
        ROOT.check_names(&root, "", &mut problems);
        let is_read = |key: &str| sections.contains(&key.split('.').next().unwrap_or_default());
        problems.retain(|problem| problem.key.is_empty() || is_read(&problem.key));
        root.entries.retain(|name, _| is_read(name));
        let references = References::new(environment);
        let context = Context::new(&references, problems);
        let settings = Self::read(&Reader::root(&context, &root, Location::Default));
        let problems = context.into_problems();
        match problems.is_empty() {
            true => Ok(settings),
            false => Err(problems),
        }
    }

    /// Reads only `[server]`, for commands that ask a running server: the rest, secrets and private
    /// keys above all, may not be there for them.
    ///
    /// # Errors
    ///
    /// Every problem with that section, or with the file as a whole.
    pub fn load_server(
        sources: &Sources,
        environment: &dyn Environment,
    ) -> Result<RunningServer, Vec<Problem>> {
        let is_read = |key: &str| key.starts_with("server");
        load_part(sources, environment, is_read, |root| {
            RunningServer::read(&root.table("server"))
        })
    }

    /// Reads only `[run]`, for a command that needs nothing else.
    ///
    /// # Errors
    ///
    /// Every problem with that section, or with the file as a whole.
    pub fn load_run(
        sources: &Sources,
        environment: &dyn Environment,
    ) -> Result<FailureQueueSettings, Vec<Problem>> {
        let is_read = |key: &str| key.split('.').next() == Some("run");
        load_part(sources, environment, is_read, |root| {
            built(root, "run", FailureQueueOptions::build)
        })
    }

    /// Reads what is written about policies, for commands that try one out: `[gate]`,
    /// `[backoff.*]`, `[run]`, `[poll]` and the protection of every pool.
    ///
    /// # Errors
    ///
    /// Every problem with those sections, or with the file as a whole.
    pub fn load_policies(
        sources: &Sources,
        environment: &dyn Environment,
    ) -> Result<Policies, Vec<Problem>> {
        let is_read = |key: &str| {
            let section = key.split('.').next().unwrap_or_default();
            matches!(section, "gate" | "backoff" | "run" | "poll") || key.contains(".protection")
        };
        load_part(sources, environment, is_read, Policies::read)
    }

    /// Reads the bytes of a settings file by its path.
    ///
    /// # Errors
    ///
    /// The one problem that it cannot be read.
    pub fn read_file(
        path: &Path,
        environment: &dyn Environment,
    ) -> Result<(String, Vec<u8>), Problem> {
        let name = path.display().to_string();
        match environment.read(path) {
            Ok(bytes) => Ok((name, bytes)),
            Err(error) => {
                let what = format!("cannot read the settings: {error}");
                Err(Problem::about(&Location::UnreadableFile(name), "", what))
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
        if name == WEBHOOK_OPERATION {
            return &operation::WEBHOOK_TYPE;
        }
        let default = || &self.operations[DEFAULT_OPERATION];
        self.operations.get(name).unwrap_or_else(default)
    }

    fn read(root: &Reader<'_>) -> Self {
        let server_table = root.table("server");
        let server = Server::read(&server_table);
        let backoffs = read_backoffs(&root.table("backoff"));
        let credentials = operation::read_credentials(&root.table("credential"));
        root.allow_names("backoff", backoffs.keys());
        root.allow_names("credential", credentials.keys());
        let pools = root.table("pool");
        let pools = pools
            .tables()
            .map(|(name, reader)| (name.to_owned(), PoolSettings::read(name, &reader)));
        Self {
            listeners: Listeners::read(&server_table),
            storage: server::read_storage(&root.table("storage")),
            gates: gates::read(&root.table("gate")),
            pools: pools.collect(),
            forward: values(root, "forward", ForwardOptions::over),
            network: Network::read(&root.table("network")),
            clients: server::read_clients(&root.table("client"), &server_table, server.listen),
            http: Http::read(&root.table("http")),
            retry_budget: built(root, "retry_budget", BudgetOptions::build),
            trails: values(root, "trails", TrailsOptions::over),
            run: built(root, "run", FailureQueueOptions::build),
            poll: built(root, "poll", PollOptions::build),
            operations: operation::read_types(&root.table("operation")),
            fetch: values(root, "fetch", FetchOptions::over),
            jobs: values(root, "jobs", JobsOptions::over),
            telemetry: values(root, "telemetry", TelemetryOptions::over),
            telemetry_headers: pool::read_headers(&root.table("telemetry").table("headers")),
            server,
            backoffs,
            credentials,
            references: BTreeSet::new(),
        }
    }
}

impl Default for Settings {
    /// What holds when nothing is written.
    fn default() -> Self {
        let context = Context::default();
        let root = Table::default();
        let settings = Self::read(&Reader::root(&context, &root, Location::Default));
        debug_assert!(
            context.into_problems().is_empty(),
            "the defaults fit together"
        );
        settings
    }
}

/// Reads some sections: those whose settings `is_read` names by their paths.
fn load_part<T>(
    sources: &Sources,
    environment: &dyn Environment,
    is_read: impl Fn(&str) -> bool,
    read: impl FnOnce(&Reader<'_>) -> T,
) -> Result<T, Vec<Problem>> {
    let (root, mut problems) = tree(sources, environment)?;
    ROOT.check_names(&root, "", &mut problems);
    problems.retain(|problem| is_read(&problem.key));
    let references = References::new(environment);
    let context = Context::new(&references, problems);
    let part = read(&Reader::root(&context, &root, Location::Default));
    let problems = context.into_problems();
    match problems.is_empty() {
        true => Ok(part),
        false => Err(problems),
    }
}

/// The tree of the file with the environment and the flags laid over it.
fn tree(
    sources: &Sources,
    environment: &dyn Environment,
) -> Result<(Table, Vec<Problem>), Vec<Problem>> {
    let mut problems = Vec::new();
    let mut root = Table::default();
    if let Some((name, bytes)) = &sources.file {
        match document::parse(name, bytes, &mut problems) {
            Some(parsed) => root = parsed,
            None => return Err(problems),
        }
    }
    variables::apply(&mut root, &environment.variables(), &mut problems);
    for flag in &sources.flags {
        let location = Location::Flag(flag.name.clone());
        match split_path(&flag.path) {
            Some(path) => problems.extend(variables::set(&mut root, &path, &flag.value, &location)),
            None => {
                let what = "expected a setting such as `gate.max_rate`";
                problems.push(Problem::about(&location, "", what));
            }
        }
    }
    Ok((root, problems))
}

/// The values of a section that cannot contradict each other.
fn values<O: Options, V: Values>(root: &Reader<'_>, name: &str, over: impl Fn(O, V) -> V) -> V {
    over(root.table(name).options(), V::default())
}

/// The settings of a policy.
fn built<O: Options, S: Default>(
    root: &Reader<'_>,
    name: &str,
    build: impl Fn(O) -> Result<S, SettingErrors>,
) -> S {
    let reader = root.table(name);
    reader
        .built(build(reader.options()), None)
        .unwrap_or_default()
}

/// What is written goes over the preset of the same name, and over `standard` for a new one. Reports to
/// webhooks have one of their own.
fn read_backoffs(reader: &Reader<'_>) -> BTreeMap<String, BackoffSettings> {
    let presets = Preset::ALL.iter();
    let mut backoffs: BTreeMap<String, BackoffSettings> = presets
        .map(|preset| (preset.as_str().to_owned(), preset.settings()))
        .collect();
    backoffs.insert(
        WEBHOOK_OPERATION.to_owned(),
        operation::WEBHOOK_BACKOFF.clone(),
    );
    for (name, reader) in reader.tables() {
        let options: BackoffOptions = reader.options();
        let standard = || Preset::default().settings();
        let defaults = backoffs.get(name).cloned().unwrap_or_else(standard);
        let backoff = reader.built(options.build_over(defaults), None);
        // Sections that refer to it have its name right, even if it is wrong itself.
        backoffs.insert(name.to_owned(), backoff.unwrap_or_default());
    }
    backoffs
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

#[cfg(test)]
pub(crate) mod tests;
