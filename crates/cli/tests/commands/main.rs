//! The commands as seen from outside: exit code, stdout and stderr of the real binary.

#![expect(
    clippy::unwrap_used,
    reason = "all of this is test code; clippy knows only functions marked as tests"
)]

mod access_log;
mod backoff;
mod bad_input;
mod check;
mod completions;
mod config;
mod config_file;
mod demo;
mod explain;
mod fetch;
mod fetch_resume;
mod health;
mod job_server;
mod jobs;
mod man;
mod mock;
mod ops;
mod pace;
mod poll;
mod replay;
mod run;
mod run_explain;
mod running_server;
mod service_manager;
mod simulate;
mod simulate_bad_input;
mod simulate_from_log;
mod simulate_random;
mod streams;
mod support;
mod usage;
mod web_server;
