//! Loading the settings: from the file that is named, else from the default one.

use std::path::{Path, PathBuf};

use app::settings::{
    CONFIG_VARIABLE, Environment, Flag, Policies, Problem, Process, RunningServer, Settings,
    Sources,
};
use policy::failure_queue::FailureQueueSettings;

/// Settings, and the file they were read from.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The file's name; `None` if no file was read.
    pub(crate) file: Option<String>,
    pub(crate) settings: Result<Settings, Vec<Problem>>,
}

/// Reads the settings: from `named`, else from the file that the environment names, else from
/// `tidegate.toml` if it exists.
pub(crate) fn load(named: Option<&Path>, flags: Vec<Flag>) -> Loaded {
    let file = match find(named) {
        None => None,
        Some(path) => match Settings::read_file(&path, &Process) {
            Ok(file) => Some(file),
            Err(problem) => {
                return Loaded {
                    file: Some(path.display().to_string()),
                    settings: Err(vec![problem]),
                };
            }
        },
    };
    let name = file.as_ref().map(|(name, _)| name.clone());
    Loaded {
        settings: Settings::load(&Sources { file, flags }, &Process),
        file: name,
    }
}

/// Reads these sections alone, from the same places and from flags.
pub(crate) fn load_sections(
    named: Option<&Path>,
    flags: Vec<Flag>,
    sections: &[&str],
) -> Result<Settings, Vec<Problem>> {
    let file = match find(named) {
        None => None,
        Some(path) => Some(Settings::read_file(&path, &Process).map_err(|problem| vec![problem])?),
    };
    Settings::load_sections(&Sources { file, flags }, &Process, sections)
}

/// Reads `[server]` alone, from the same places.
pub(crate) fn load_server(named: Option<&Path>) -> Result<RunningServer, Vec<Problem>> {
    let file = match find(named) {
        None => None,
        Some(path) => Some(Settings::read_file(&path, &Process).map_err(|problem| vec![problem])?),
    };
    let flags = Vec::new();
    Settings::load_server(&Sources { file, flags }, &Process)
}

/// Reads `[run]` alone, from the same places; `flags` lie over it.
pub(crate) fn load_run(
    named: Option<&Path>,
    flags: Vec<Flag>,
) -> Result<FailureQueueSettings, Vec<Problem>> {
    let file = match find(named) {
        None => None,
        Some(path) => Some(Settings::read_file(&path, &Process).map_err(|problem| vec![problem])?),
    };
    Settings::load_run(&Sources { file, flags }, &Process)
}

/// Reads what the file at `path` says about policies.
pub(crate) fn load_policies(path: &Path) -> Result<Policies, Vec<Problem>> {
    let file = Settings::read_file(path, &Process).map_err(|problem| vec![problem])?;
    let (file, flags) = (Some(file), Vec::new());
    Settings::load_policies(&Sources { file, flags }, &Process)
}

/// The file that is read if none is named.
pub(crate) const DEFAULT_PATH: &str = "tidegate.toml";

fn find(named: Option<&Path>) -> Option<PathBuf> {
    let variable = || {
        Process
            .variable(CONFIG_VARIABLE)
            .filter(|path| !path.is_empty())
    };
    let default = || {
        Path::new(DEFAULT_PATH)
            .exists()
            .then(|| DEFAULT_PATH.into())
    };
    named
        .map(Path::to_path_buf)
        .or_else(|| variable().map(PathBuf::from))
        .or_else(default)
}
