//! `tidegate jobs`: fetches and crawls of a running server.

use anyhow::anyhow;
use app::admin::bodies::{Job, JobList, JobStatusName, StartJob, StartedJob};
use app::admin::client::{Client, ClientError};
use app::poll::{PollTarget, StatusReader};
use clap::{Args, Subcommand};
use policy::setting;
use serde_json::json;

use super::ops::age;
use super::server::{self, ServerArgs};
use super::{Failure, poll};
use crate::exit::Exit;
use crate::output::{self, Output};

/// Start, follow and cancel fetches and crawls of a running server
///
/// A job fetches URLs or crawls sites as `tidegate fetch` does, but in the server:
/// it continues after a restart, and its report is at /r/SLUG of the admin address.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct JobsArgs {
    #[command(subcommand)]
    command: JobsCommand,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum JobsCommand {
    /// Show jobs, newest first
    #[command(after_help = EXAMPLES)]
    List(ListArgs),
    /// Start a job
    #[command(after_help = EXAMPLES)]
    Start(StartArgs),
    /// Show one job
    #[command(after_help = EXAMPLES)]
    Show(ShowArgs),
    /// Cancel jobs that are queued or running
    #[command(after_help = EXAMPLES)]
    Cancel(CancelArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Number of jobs to show, at most 1000
    #[arg(long, value_name = "N", default_value = "20", value_parser = limit, allow_hyphen_values = true)]
    limit: u32,
}

#[derive(Debug, Args)]
struct StartArgs {
    /// URLs to fetch
    #[arg(value_name = "URL", required_unless_present = "sitemaps")]
    urls: Vec<String>,

    /// Sitemap whose URLs are fetched; may be repeated
    #[arg(long = "sitemap", value_name = "URL")]
    sitemaps: Vec<String>,

    /// Follow the links of pages
    #[arg(long)]
    crawl: bool,

    /// Links away from the given URLs that a crawl follows [default: `fetch.depth`]
    #[arg(long, value_name = "N", requires = "crawl", value_parser = depth, allow_hyphen_values = true)]
    depth: Option<u32>,

    /// Follow only links to the hosts of the given URLs
    #[arg(long, requires = "crawl")]
    same_host: bool,

    /// Follow only links in which this regular expression is found; may be
    /// repeated
    #[arg(long, value_name = "PATTERN", requires = "crawl")]
    include: Vec<String>,

    /// Do not follow links in which this regular expression is found; may be
    /// repeated
    #[arg(long, value_name = "PATTERN", requires = "crawl")]
    exclude: Vec<String>,

    /// Follow the job until it ends, as `tidegate poll` does
    #[arg(long)]
    wait: bool,
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// Id of the job
    #[arg(value_name = "ID")]
    id: String,
}

#[derive(Debug, Args)]
struct CancelArgs {
    /// Ids of jobs
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
}

fn limit(text: &str) -> Result<u32, String> {
    setting::whole(text, 1, 1000)
}

fn depth(text: &str) -> Result<u32, String> {
    setting::whole(text, 0, 1000)
}

const EXAMPLES: &str = "\
Examples:
  tidegate jobs start https://docs.example.com/ --crawl --same-host --wait
  tidegate jobs start --sitemap https://docs.example.com/sitemap.xml
  tidegate jobs list
  tidegate jobs show job_01jcrz4m3v8k2n6t0q5w9x7y1b
  tidegate jobs cancel job_01jcrz4m3v8k2n6t0q5w9x7y1b";

pub(super) fn run(args: &JobsArgs, output: &Output) -> Result<(), Failure> {
    let client = server::client(&args.server, output)?;
    match &args.command {
        JobsCommand::List(list) => {
            let list = server::call(client.jobs(None, Some(list.limit)))?;
            output.result(&json!(list), || table(&list))
        }
        JobsCommand::Show(show) => {
            let job = server::block_on(async { client.job(&show.id).await.map_err(named_failure) });
            let job = job?;
            output.result(&json!(job), || describe(&job, &client))
        }
        JobsCommand::Start(start) => run_start(start, args, &client, output),
        JobsCommand::Cancel(cancel) => server::block_on(run_cancel(&cancel.ids, &client, output)),
    }
}

/// The failure of a call that names a job.
fn named_failure(error: ClientError) -> Failure {
    server::named_failure(error, "tidegate jobs list")
}

fn run_start(
    start: &StartArgs,
    args: &JobsArgs,
    client: &Client,
    output: &Output,
) -> Result<(), Failure> {
    let body = StartJob {
        urls: start.urls.clone(),
        sitemaps: start.sitemaps.clone(),
        crawl: start.crawl,
        depth: start.depth,
        same_host: start.same_host,
        include: start.include.clone(),
        exclude: start.exclude.clone(),
    };
    let job = server::call(client.start_job(&body))?;
    if !start.wait {
        return output.result(&json!(job), || {
            let StartedJob { id, slug } = &job;
            let url = client.url();
            format!(
                "{id}: queued\nfollow it with `tidegate jobs show {id}`; when it is done, its \
                 report is at {url}/r/{slug}\n"
            )
        });
    }
    if !output.is_json() && !output.is_quiet() {
        output.text(&format!("{}: queued\n", job.id))?;
    }
    follow(&job, args, client, output)?;
    if output.is_json() || output.is_quiet() {
        return Ok(());
    }
    output.text(&format!("report: {}\n", report(&job.slug, client)))
}

fn follow(
    job: &StartedJob,
    args: &JobsArgs,
    client: &Client,
    output: &Output,
) -> Result<(), Failure> {
    let Some((url, headers, transport)) = client.job_status(&job.id) else {
        let error = anyhow!("the status of `{}` has no address", job.id);
        return Err(Failure::new(Exit::Failed, error));
    };
    let target = PollTarget {
        url,
        headers,
        transport,
        reader: StatusReader::default(),
        deadline: None,
    };
    poll::follow_target(target, args.server.file.config.as_deref(), output)
}

async fn run_cancel(ids: &[String], client: &Client, output: &Output) -> Result<(), Failure> {
    let (mut jobs, mut failed) = (Vec::new(), None::<Failure>);
    for id in ids {
        match client.cancel_job(id).await {
            Ok(job) => jobs.push(job),
            Err(error) => {
                let failure = named_failure(error);
                let errors = failure.errors.into_iter();
                let errors = errors.map(|error| error.context(format!("`{id}`")));
                match &mut failed {
                    Some(earlier) => earlier.errors.extend(errors),
                    None => {
                        failed = Some(Failure {
                            errors: errors.collect(),
                            ..failure
                        });
                    }
                }
            }
        }
    }
    output.result(&json!({ "jobs": jobs }), || {
        let lines = jobs
            .iter()
            .map(|job| format!("{}: {}\n", job.id, job.status.as_str()));
        lines.collect()
    })?;
    failed.map_or(Ok(()), Err)
}

fn table(list: &JobList) -> String {
    if list.jobs.is_empty() {
        return "no jobs\n".to_owned();
    }
    let mut text = output::table(HEADING, list.jobs.iter().map(row));
    if list.next_cursor.is_some() {
        text.push_str("\nthere are more: raise `--limit`\n");
    }
    text
}

const HEADING: &[&str] = &[
    "id", "status", "stage", "progress", "urls", "failed", "age", "job",
];

fn row(job: &Job) -> Vec<String> {
    let stage = match job.status {
        JobStatusName::Queued | JobStatusName::Done => "-",
        JobStatusName::Running | JobStatusName::Error | JobStatusName::Cancelled => {
            job.stage.as_str()
        }
    };
    vec![
        job.id.clone(),
        job.status.as_str().to_owned(),
        stage.to_owned(),
        format!("{:.0} %", job.progress.floor()),
        format!("{}/{}", job.counts.done, job.counts.total),
        job.counts.failed.to_string(),
        age(job.created_at_ms),
        job.summary.clone(),
    ]
}

fn describe(job: &Job, client: &Client) -> String {
    let counts = &job.counts;
    let mut rows = vec![
        ("id", job.id.clone()),
        ("job", job.summary.clone()),
        ("status", job.status.as_str().to_owned()),
    ];
    let mut add = |name, value: Option<String>| rows.extend(value.map(|value| (name, value)));
    add("error", job.error.clone());
    let is_running = job.status == JobStatusName::Running;
    add("stage", is_running.then(|| job.stage.as_str().to_owned()));
    add("progress", Some(format!("{} %", job.progress)));
    add("urls", Some(format!("{} of {}", counts.done, counts.total)));
    add("failed", Some(counts.failed.to_string()));
    add("requests", Some(counts.sent.to_string()));
    add("bytes", Some(counts.bytes.to_string()));
    add("accepted", Some(format!("{} ago", age(job.created_at_ms))));
    let ago = |at: Option<i64>| at.map(|at| format!("{} ago", age(at)));
    add("started", ago(job.started_at_ms));
    add("ended", ago(job.finished_at_ms));
    let is_done = job.status == JobStatusName::Done;
    add("report", is_done.then(|| report(&job.slug, client)));
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|(name, value)| vec![name.to_owned(), value])
        .collect();
    output::columns(&rows)
}

fn report(slug: &str, client: &Client) -> String {
    format!("{}/r/{slug}", client.url())
}
