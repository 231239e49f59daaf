//! Plays scenarios made up from seeds and checks every promise on every event. `scripts/run-swarm`
//! runs it and says how it is called.

#![expect(
    clippy::print_stdout,
    reason = "what a person started by hand tells them"
)]

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
    let wanted = Wanted::read(std::env::args().skip(1))?;
    if wanted.print {
        for seed in wanted.seeds {
            println!("{}", swarm::written(seed));
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(file) = &wanted.file {
        return play_file(file);
    }
    let run = Run::new(wanted);
    thread::scope(|scope| {
        for _ in 0..run.wanted.jobs {
            scope.spawn(|| run.work());
        }
    });
    run.report()
}

/// What was asked for.
#[derive(Debug)]
struct Wanted {
    seeds: Range<u64>,
    limit: Option<Duration>,
    keep_going: bool,
    jobs: usize,
    directory: PathBuf,
    file: Option<PathBuf>,
    print: bool,
}

impl Wanted {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut wanted = Self {
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
                    wanted.seeds = seed..u64::saturating_add(seed, 1);
                    is_bounded = true;
                }
                "--seeds" => {
                    let value = value()?;
                    let (from, to) = value
                        .split_once("..")
                        .ok_or_else(|| format!("`{value}` is no range, expected `FROM..TO`"))?;
                    wanted.seeds = from.parse()?..to.parse()?;
                    is_bounded = true;
                }
                "--minutes" => {
                    let minutes: f64 = value()?.parse()?;
                    wanted.limit = Some(Duration::try_from_secs_f64(60.0 * minutes)?);
                }
                "--print" => wanted.print = true,
                "--keep-going" => wanted.keep_going = true,
                "--jobs" => wanted.jobs = value()?.parse()?,
                "--directory" => wanted.directory = value()?.into(),
                "--file" => wanted.file = Some(value()?.into()),
                _ => return Err(format!("`{word}` is unknown; see scripts/run-swarm").into()),
            }
        }
        if wanted.limit.is_none() && !is_bounded {
            wanted.limit = Some(Duration::from_secs(60));
        }
        Ok(wanted)
    }
}

struct Run {
    wanted: Wanted,
    started: Instant,
    next: AtomicU64,
    done: AtomicU64,
    events: AtomicU64,
    is_over: AtomicBool,
    failures: Mutex<BTreeMap<u64, Violation>>,
}

impl Run {
    fn new(wanted: Wanted) -> Self {
        Self {
            next: AtomicU64::new(wanted.seeds.start),
            wanted,
            started: Instant::now(),
            done: AtomicU64::new(0),
            events: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            failures: Mutex::default(),
        }
    }

    fn work(&self) {
        while !self.is_over.load(Ordering::Relaxed) && !self.is_late() {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.wanted.seeds.end {
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
                self.say_how_far(done);
            }
        }
    }

    fn is_late(&self) -> bool {
        self.wanted
            .limit
            .is_some_and(|limit| self.started.elapsed() >= limit)
    }

    fn fail(&self, seed: u64, violation: Violation) {
        println!("seed {seed}: {violation}");
        if let Ok(mut failures) = self.failures.lock() {
            failures.insert(seed, violation);
        }
        if !self.wanted.keep_going {
            self.is_over.store(true, Ordering::Relaxed);
        }
    }

    fn say_how_far(&self, done: u64) {
        let events = self.events.load(Ordering::Relaxed);
        let seconds = self.started.elapsed().as_secs();
        println!("{done} scenarios, {events} events, {seconds} s");
    }

    fn report(self) -> Result<ExitCode, Box<dyn Error>> {
        self.say_how_far(self.done.load(Ordering::Relaxed));
        let failures = self.failures.into_inner()?;
        let mut by_promise = BTreeMap::<_, u64>::new();
        for (seed, violation) in &failures {
            *by_promise.entry(violation.promise).or_default() += 1;
            fs::create_dir_all(&self.wanted.directory)?;
            let file = self.wanted.directory.join(format!("{seed}.toml"));
            let opening = format!("# {violation}\n");
            fs::write(&file, opening + &swarm::written(*seed))?;
            println!("{}: scripts/run-swarm --seed {seed}", file.display());
        }
        for (promise, count) in by_promise {
            println!("{promise:?}: {count}");
        }
        Ok(if failures.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

fn play_file(file: &PathBuf) -> Result<ExitCode, Box<dyn Error>> {
    let name = file.display().to_string();
    let scenario = Scenario::read(&name, &fs::read(file)?).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        problems.join("\n")
    })?;
    match check(&scenario, scenario.seed) {
        Ok(checked) => {
            println!("{name}: {} events, every promise kept", checked.events);
            Ok(ExitCode::SUCCESS)
        }
        Err(violation) => {
            println!("{name}: {violation}");
            Ok(ExitCode::FAILURE)
        }
    }
}
