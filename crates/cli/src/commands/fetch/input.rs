//! What was typed, as a plan. Everything that is wrong with it is reported at once, before anything is
//! sent.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Error, anyhow};
use app::exchange::Trust;
use app::fetch::{FetchPlan, LinesTarget, MAX_FILTERS, Scope, Trackers, check_folder, parse_given};
use app::poll;
use app::settings::{Process, Settings};

use super::FetchArgs;
use crate::commands::{Failure, problems, settings};
use crate::output::Output;

/// What is fetched, and with which settings.
#[derive(Debug)]
pub(super) struct FetchInput {
    pub(super) settings: Settings,
    pub(super) plan: FetchPlan,
}

/// The sections that fetch depends on.
const SECTIONS: &[&str] = &[
    "gate",
    "network",
    "http",
    "retry_budget",
    "backoff",
    "fetch",
];

const HELP: &str = "`tidegate fetch --help` shows what it takes";

/// Reads what was typed.
pub(super) fn read(args: &FetchArgs, output: &Output) -> Result<FetchInput, Failure> {
    let mut errors = Vec::new();
    let mut plan = FetchPlan::new(Trust::Operator);
    read_sources(args, &mut plan, &mut errors);
    read_crawl(args, &mut errors);
    read_outputs(args, output, &mut plan, &mut errors);
    let (headers, wrong) = poll::headers(&args.requests.headers, &Process);
    plan.headers = headers;
    errors.extend(wrong.iter().map(|error| anyhow!("`--header`: {error}")));
    let config = args.file.config.as_deref();
    match settings::load_sections(config, args.flags(), SECTIONS) {
        Ok(settings) if errors.is_empty() => {
            let crawl = &args.crawl;
            let (depth, same_host) = (settings.fetch.depth, crawl.same_host);
            plan.scope = Scope::new(
                crawl.crawl,
                depth,
                same_host,
                &crawl.include,
                &crawl.exclude,
            )
            .map_err(|error| Failure::usage(vec![anyhow!("{error}")], HELP))?;
            Ok(FetchInput { settings, plan })
        }
        Ok(_) => Err(Failure::usage(errors, HELP)),
        Err(problems) if errors.is_empty() => {
            let hint = "`tidegate config default` prints every setting with its default";
            Err(problems::failure(None, problems, hint, output))
        }
        Err(problems) => {
            let problems = problems.iter().map(problems::message);
            errors.extend(problems.map(|problem| anyhow!(problem)));
            Err(Failure::usage(errors, HELP))
        }
    }
}

/// Where URLs come from.
fn read_sources(args: &FetchArgs, plan: &mut FetchPlan, errors: &mut Vec<Error>) {
    for (name, texts, urls) in [
        ("URL", &args.urls, &mut plan.urls),
        ("--sitemap", &args.sitemaps, &mut plan.sitemaps),
    ] {
        for text in texts {
            match parse_given(text) {
                Ok(url) => urls.push(url),
                Err(error) => errors.push(anyhow!("`{name}`: {error}")),
            }
        }
    }
    match args.input.as_deref() {
        None => {}
        Some(path) if is_stream(path) => plan.list = Some(Box::new(io::stdin())),
        Some(path) => match open_list(path) {
            Ok(file) => plan.list = Some(Box::new(file)),
            Err(error) => errors.push(unreadable("--input", path, &error)),
        },
    }
    plan.state.clone_from(&args.resume);
    if let Some(path) = &args.resume {
        check_writable("--resume", path, errors);
    }
    // A state has the URLs of its fetch.
    let has_state = args.resume.as_ref().is_some_and(|path| path.exists());
    if args.urls.is_empty() && args.sitemaps.is_empty() && args.input.is_none() && !has_state {
        errors.push(anyhow!(
            "there is nothing to fetch, expected a URL, `-i FILE` or `--sitemap URL`"
        ));
    }
}

fn open_list(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    match file.metadata()?.is_dir() {
        true => Err(io::ErrorKind::IsADirectory.into()),
        false => Ok(file),
    }
}

/// Checks patterns one by one, and flags that have no effect.
fn read_crawl(args: &FetchArgs, errors: &mut Vec<Error>) {
    let crawl = &args.crawl;
    let patterns = [("--include", &crawl.include), ("--exclude", &crawl.exclude)];
    for (flag, patterns) in patterns {
        for pattern in patterns {
            let checked = Scope::new(true, 0, false, std::slice::from_ref(pattern), &[]);
            errors.extend(checked.err().map(|error| anyhow!("`{flag}`: {error}")));
        }
    }
    if crawl.depth.is_some() && !crawl.crawl {
        errors.push(anyhow!("`--depth` has no effect without `--crawl`"));
    }
    let is_limited = [
        ("--same-host", crawl.same_host),
        ("--include", !crawl.include.is_empty()),
        ("--exclude", !crawl.exclude.is_empty()),
    ];
    for (flag, _) in is_limited.into_iter().filter(|(_, is_given)| *is_given) {
        if !crawl.crawl && args.sitemaps.is_empty() {
            errors.push(anyhow!(
                "`{flag}` has no effect without `--crawl` or `--sitemap`"
            ));
        }
    }
}

/// Where results go. Files are not changed yet.
fn read_outputs(args: &FetchArgs, output: &Output, plan: &mut FetchPlan, errors: &mut Vec<Error>) {
    let outputs = &args.outputs;
    plan.folder.clone_from(&outputs.out);
    if let Some(path) = &outputs.out
        && let Err(error) = check_folder(path)
    {
        errors.push(Error::new(error).context("`--out`"));
    }
    match outputs.jsonl.as_deref() {
        None => {}
        Some(path) if is_stream(path) => {
            if output.is_json() {
                errors.push(anyhow!(
                    "`--jsonl -` and `--json` both write to stdout, expected one of them"
                ));
            }
            if args.resume.is_some() {
                errors.push(anyhow!(
                    "`--jsonl -` cannot be continued, expected a file with `--resume`"
                ));
            }
            plan.lines = Some(LinesTarget::Stream(Box::new(output.json_lines())));
        }
        Some(path) => {
            check_writable("--jsonl", path, errors);
            plan.lines = Some(LinesTarget::File(path.to_owned()));
        }
    }
    if let Some(report) = &outputs.report {
        let found = errors.len();
        for path in report_paths(report) {
            if errors.len() == found {
                check_writable("--report", &path, errors);
            }
        }
        plan.report = trackers(outputs.filters.as_deref(), errors);
    } else if outputs.filters.is_some() {
        errors.push(anyhow!("`--filters` has no effect without `--report`"));
    }
    check_distinct(args, errors);
}

fn trackers(filters: Option<&Path>, errors: &mut Vec<Error>) -> Option<Trackers> {
    let Some(path) = filters else {
        return Some(Trackers::built_in());
    };
    let mut text = String::new();
    // One byte more tells that it is too long.
    let max = u64::try_from(MAX_FILTERS)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    let read = File::open(path).and_then(|file| file.take(max).read_to_string(&mut text));
    if let Err(error) = read {
        errors.push(unreadable("--filters", path, &error));
        return None;
    }
    let trackers = Trackers::with_filters(&text);
    let shown = path.display();
    trackers
        .map_err(|error| errors.push(anyhow!("`--filters` is `{shown}`: {error}")))
        .ok()
}

/// The page and its data, or the data alone.
pub(super) fn report_paths(path: &Path) -> Vec<PathBuf> {
    match path
        .extension()
        .is_some_and(|extension| extension == "json")
    {
        true => vec![path.to_owned()],
        false => vec![path.to_owned(), path.with_extension("json")],
    }
}

/// An output in the file of another one, or of an input, would destroy it.
fn check_distinct(args: &FetchArgs, errors: &mut Vec<Error>) {
    let outputs = &args.outputs;
    let named = |flag: &'static str, path: &Option<PathBuf>| Some((flag, path.clone()?));
    let mut files: Vec<(&str, PathBuf)> = [
        named("--input", &args.input),
        named("--filters", &outputs.filters),
    ]
    .into_iter()
    .flatten()
    .collect();
    let reports = outputs.report.iter().flat_map(|path| report_paths(path));
    let written = [
        named("--resume", &args.resume),
        named("--jsonl", &outputs.jsonl),
    ];
    let written = written.into_iter().flatten();
    for (flag, path) in written.chain(reports.map(|path| ("--report", path))) {
        let is_other = |(_, other): &&(&str, PathBuf)| !is_stream(other) && is_same(other, &path);
        match files.iter().find(is_other) {
            Some((other, _)) => errors.push(anyhow!(
                "`{other}` and `{flag}` are the same file, `{}`",
                path.display()
            )),
            None => files.push((flag, path)),
        }
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (fs::canonicalize(one), fs::canonicalize(other)) {
        // Devices such as /dev/null may be named twice.
        (Ok(one), Ok(other)) => one == other && one.is_file(),
        _ => one == other,
    }
}

/// Can the file be written? Its content is not changed.
fn check_writable(flag: &str, path: &Path, errors: &mut Vec<Error>) {
    let is_new = !path.exists();
    let opened = OpenOptions::new().append(true).create(true).open(path);
    match opened {
        Ok(_) if is_new => _ = fs::remove_file(path),
        Ok(_) => {}
        Err(error) => errors.push(anyhow!(
            "`{flag}` is `{}`, expected a file that can be written: {error}",
            path.display()
        )),
    }
}

fn unreadable(flag: &str, path: &Path, error: &io::Error) -> Error {
    let path = path.display();
    anyhow!("`{flag}` is `{path}`, expected a file that can be read: {error}")
}

pub(super) fn is_stream(path: &Path) -> bool {
    path == Path::new("-")
}
