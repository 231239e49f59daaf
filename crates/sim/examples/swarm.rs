//! Runs random scenarios and checks the invariants on every event. See `scripts/run-swarm` for the
//! options.

#![expect(clippy::print_stdout, reason = "a program that prints its results")]

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sim::check::{Violation, check};
use sim::scenario::Scenario;
use sim::swarm;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let options = Options::read(std::env::args().skip(1))?;
    if options.print {
        for seed in options.seeds {
            println!("{}", swarm::scenario_text(seed));
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(file) = &options.file {
        return check_file(file);
    }
    let run = Run::new(options);
    thread::scope(|scope| {
        for _ in 0..run.options.jobs {
            scope.spawn(|| run.work());
        }
    });
    run.report()
}

#[derive(Debug)]
struct Options {
    seeds: Range<u64>,
    limit: Option<Duration>,
    keep_going: bool,
    jobs: usize,
    directory: PathBuf,
    file: Option<PathBuf>,
    print: bool,
}

impl Options {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut options = Self {
            seeds: 0..u64::MAX,
            limit: None,
            keep_going: false,
            jobs: thread::available_parallelism().map_or(1, usize::from),
            directory: "target/swarm".into(),
            file: None,
            print: false,
        };
        let mut is_bounded = false;
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .ok_or_else(|| format!("`{word}` needs a value"))
            };
            match &*word {
                "--seed" => {
                    let seed = value()?.parse()?;
                    options.seeds = seed..u64::saturating_add(seed, 1);
                    is_bounded = true;
                }
                "--seeds" => {
                    let value = value()?;
                    let (from, to) = value
                        .split_once("..")
                        .ok_or_else(|| format!("`{value}` is no range, expected `FROM..TO`"))?;
                    options.seeds = from.parse()?..to.parse()?;
                    is_bounded = true;
                }
                "--minutes" => {
                    let minutes: f64 = value()?.parse()?;
                    options.limit = Some(Duration::try_from_secs_f64(60.0 * minutes)?);
                }
                "--print" => options.print = true,
                "--keep-going" => options.keep_going = true,
                "--jobs" => options.jobs = value()?.parse()?,
                "--directory" => options.directory = value()?.into(),
                "--file" => options.file = Some(value()?.into()),
                _ => return Err(format!("`{word}` is unknown; see scripts/run-swarm").into()),
            }
        }
        if options.limit.is_none() && !is_bounded {
            options.limit = Some(Duration::from_secs(60));
        }
        Ok(options)
    }
}

struct Run {
    options: Options,
    started: Instant,
    next: AtomicU64,
    done: AtomicU64,
    events: AtomicU64,
    is_stopped: AtomicBool,
    failures: Mutex<BTreeMap<u64, Violation>>,
}

impl Run {
    fn new(options: Options) -> Self {
        Self {
            next: AtomicU64::new(options.seeds.start),
            options,
            started: Instant::now(),
            done: AtomicU64::new(0),
            events: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
            failures: Mutex::default(),
        }
    }

    fn work(&self) {
        while !self.is_stopped.load(Ordering::Relaxed) && !self.is_late() {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.options.seeds.end {
                return;
            }
            match swarm::run(seed) {
                Ok(checked) => {
                    self.events.fetch_add(checked.events, Ordering::Relaxed);
                }
                Err(violation) => self.fail(seed, violation),
            }
            let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
            if done.is_multiple_of(1000) {
                self.print_progress(done);
            }
        }
    }

    fn is_late(&self) -> bool {
        self.options
            .limit
            .is_some_and(|limit| self.started.elapsed() >= limit)
    }

    fn fail(&self, seed: u64, violation: Violation) {
        println!("seed {seed}: {violation}");
        if let Ok(mut failures) = self.failures.lock() {
            failures.insert(seed, violation);
        }
        if !self.options.keep_going {
            self.is_stopped.store(true, Ordering::Relaxed);
        }
    }

    fn print_progress(&self, done: u64) {
        let events = self.events.load(Ordering::Relaxed);
        let seconds = self.started.elapsed().as_secs();
        println!("{done} scenarios, {events} events, {seconds} s");
    }

    fn report(self) -> Result<ExitCode, Box<dyn Error>> {
        self.print_progress(self.done.load(Ordering::Relaxed));
        let failures = self.failures.into_inner()?;
        let mut by_invariant = BTreeMap::<_, u64>::new();
        for (seed, violation) in &failures {
            *by_invariant.entry(violation.invariant).or_default() += 1;
            fs::create_dir_all(&self.options.directory)?;
            let file = self.options.directory.join(format!("{seed}.toml"));
            let opening = format!("# {violation}\n");
            fs::write(&file, opening + &swarm::scenario_text(*seed))?;
            println!("{}: scripts/run-swarm --seed {seed}", file.display());
        }
        for (invariant, count) in by_invariant {
            println!("{invariant:?}: {count}");
        }
        Ok(if failures.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

fn check_file(file: &PathBuf) -> Result<ExitCode, Box<dyn Error>> {
    let name = file.display().to_string();
    let scenario = Scenario::read(&name, &fs::read(file)?).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        problems.join("\n")
    })?;
    match check(&scenario, scenario.seed) {
        Ok(checked) => {
            println!("{name}: {} events, no violation", checked.events);
            Ok(ExitCode::SUCCESS)
        }
        Err(violation) => {
            println!("{name}: {violation}");
            Ok(ExitCode::FAILURE)
        }
    }
}
