//! Runs scenario files and writes the figures of each beside it, with the ending `.json`.
//!
//! `simulate FILE…` does what `tidegate simulate FILE --json` does for each, on all processors. It uses
//! little of the library, so that `scripts/bench-random` can build it with older ones.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use sim::measure::Summary;
use sim::scenario::Scenario;
use sim::simulate::simulate;

fn main() -> Result<(), Box<dyn Error>> {
    let files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            run(file).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        Ok::<(), String>(())
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            worker.join().map_err(|_| "a run panicked".to_owned())??;
        }
        Ok(())
    })
}

fn run(file: &Path) -> Result<(), Box<dyn Error>> {
    let scenario = Scenario::read("scenario", &fs::read(file)?).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        problems.join("\n")
    })?;
    let figures = Summary::of(&simulate(&scenario, scenario.seed));
    fs::write(
        file.with_extension("json"),
        serde_json::to_string(&figures)?,
    )?;
    Ok(())
}
