//! What a response says about the job.

use std::fmt;
use std::str::FromStr;

use http::StatusCode;
use serde_json::Value;
use tidegate::poll::JobStatus;

use super::JobResponse;

/// A JSON pointer (RFC 6901), such as `/job/status`; an empty one is the whole document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPointer(String);

impl JsonPointer {
    fn find<'a>(&self, json: &'a Value) -> Option<&'a Value> {
        json.pointer(&self.0)
    }
}

impl FromStr for JsonPointer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_escaped = |(index, _)| matches!(text.as_bytes().get(index + 1), Some(b'0' | b'1'));
        if !text.is_empty() && !text.starts_with('/') {
            return Err("a JSON pointer, which begins with `/`, such as `/status`".to_owned());
        }
        match text.match_indices('~').all(is_escaped) {
            true => Ok(Self(text.to_owned())),
            false => Err("a JSON pointer, in which `~` is written `~0`".to_owned()),
        }
    }
}

impl fmt::Display for JsonPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How responses are read: where status and progress are, and which words end the job. Words are
/// compared without regard to case.
#[derive(Clone, Debug)]
pub struct StatusReader {
    /// Where the job's status is: a text, a number, a boolean, or null before it is known.
    pub status: JsonPointer,
    /// Where its progress in per cent is.
    pub progress: JsonPointer,
    /// The job is done.
    pub done: Vec<String>,
    /// The job failed or was cancelled.
    pub failed: Vec<String>,
}

/// What a response says about the job.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct JobReading {
    /// The status in the server's word.
    pub(super) status: Option<String>,
    pub(super) job: Option<JobStatus>,
}

/// Reads what Tidegate's own jobs answer.
///
/// # Default
///
/// `/status`, done with `done`, failed with `error` or `cancelled`; `/progress`.
impl Default for StatusReader {
    fn default() -> Self {
        let pointer = |text: &str| text.parse().expect("it begins with a slash");
        Self {
            status: pointer("/status"),
            progress: pointer("/progress"),
            done: vec!["done".to_owned()],
            failed: vec!["error".to_owned(), "cancelled".to_owned()],
        }
    }
}

impl StatusReader {
    /// Reads a response; the error is what is missing in a success.
    pub(super) fn read(
        &self,
        code: StatusCode,
        response: &JobResponse,
        location: Option<String>,
    ) -> Result<JobReading, String> {
        let json = response.json.as_ref();
        if code.is_client_error() || code.is_server_error() {
            return Ok(json.map(|json| self.read_error(json)).unwrap_or_default());
        }
        let is_empty = response.body.is_empty();
        let is_pending = matches!(code.as_u16(), 202 | 204 | 304) && is_empty;
        match (json, location) {
            _ if is_pending => Ok(JobReading::default()),
            (Some(json), location) => match (self.read_success(json), location) {
                (Err(_), Some(location)) if code.is_redirection() => Err(redirect(code, &location)),
                (read, _) => read,
            },
            (None, Some(location)) if code.is_redirection() => Err(redirect(code, &location)),
            (None, _) if is_empty => Err(format!("HTTP {code} has no body, expected JSON")),
            (None, _) => Err(format!("the body of HTTP {code} is no JSON, expected JSON")),
        }
    }

    fn read_success(&self, json: &Value) -> Result<JobReading, String> {
        let status = match self.status.find(json) {
            Some(value) => word(value).map_err(|kind| {
                format!(
                    "`{}` is {kind}, expected a text, a number or a boolean",
                    self.status
                )
            })?,
            None => return Err(self.missing(json)),
        };
        let progress = self.progress.find(json).and_then(number);
        let job = match &status {
            Some(status) => Some(self.job(status, progress)),
            None => progress.map(|_| JobStatus::Running { progress }),
        };
        Ok(JobReading { status, job })
    }

    /// An error may say how the job ended. `error` says nothing about the job: many servers write it
    /// into every error.
    fn read_error(&self, json: &Value) -> JobReading {
        let status = self.status.find(json).and_then(|value| word(value).ok());
        let status = status.flatten();
        let status = status.filter(|status| !status.eq_ignore_ascii_case("error"));
        let job = status.as_deref().map(|status| self.job(status, None));
        JobReading {
            job: job.filter(|job| !matches!(job, JobStatus::Running { .. })),
            status: None,
        }
    }

    fn job(&self, status: &str, progress: Option<f64>) -> JobStatus {
        let is_one_of =
            |words: &[String]| words.iter().any(|word| word.eq_ignore_ascii_case(status));
        if is_one_of(&self.done) {
            JobStatus::Done
        } else if is_one_of(&self.failed) {
            JobStatus::Failed
        } else {
            JobStatus::Running { progress }
        }
    }

    /// Says where a status could be instead: the members of the object that was looked in.
    fn missing(&self, json: &Value) -> String {
        let mut text = format!(
            "the response has nothing at `{}`, expected the job's status",
            self.status
        );
        let parent = self
            .status
            .0
            .rsplit_once('/')
            .map_or("", |(parent, _)| parent);
        let (parent, object) = match json.pointer(parent) {
            Some(Value::Object(object)) => (parent, Some(object)),
            _ => ("", json.as_object()),
        };
        let names = object.into_iter().flat_map(|object| object.keys());
        let names = names.filter(|name| name.len() <= MAX_NAME).take(MAX_NAMES);
        let names: Vec<String> = names
            .map(|name| format!("`{parent}/{}`", name.replace('~', "~0").replace('/', "~1")))
            .collect();
        if !names.is_empty() {
            text.push_str(&format!("; it has {}", names.join(", ")));
        }
        text
    }
}

/// As many as fit into a message, and no longer than names are.
const MAX_NAMES: usize = 8;
const MAX_NAME: usize = 40;

fn redirect(code: StatusCode, location: &str) -> String {
    format!(
        "HTTP {} points to `{location}`, expected a status; redirects are not followed",
        code.as_u16()
    )
}

/// A status in the server's word; `None` for null.
fn word(value: &Value) -> Result<Option<String>, &'static str> {
    match value {
        Value::Null => Ok(None),
        Value::Bool(value) => Ok(Some(value.to_string())),
        Value::Number(value) => Ok(Some(value.to_string())),
        Value::String(value) => Ok(Some(value.clone())),
        Value::Array(_) => Err("a list"),
        Value::Object(_) => Err("an object"),
    }
}

/// A progress, as a number or as a text such as `45` or `45 %`.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(value) => value.as_f64(),
        Value::String(text) => text.trim().trim_end_matches('%').trim_end().parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use policy::time::WallTime;

    fn reader() -> StatusReader {
        StatusReader::default()
    }

    fn read_with(reader: &StatusReader, code: u16, body: &str) -> Result<JobReading, String> {
        let response = JobResponse {
            at: WallTime::from_unix_millis(0),
            http_status: Some(code),
            problem: None,
            status: None,
            json: serde_json::from_str(body).ok(),
            body: Bytes::copy_from_slice(body.as_bytes()),
        };
        let location = (code / 100 == 3).then(|| "/other".to_owned());
        reader.read(StatusCode::from_u16(code).unwrap(), &response, location)
    }

    fn job(code: u16, body: &str) -> Option<JobStatus> {
        read_with(&reader(), code, body).unwrap().job
    }

    fn problem(code: u16, body: &str) -> String {
        read_with(&reader(), code, body).unwrap_err()
    }

    fn running(progress: Option<f64>) -> Option<JobStatus> {
        Some(JobStatus::Running { progress })
    }

    #[test]
    fn reads_status_and_progress() {
        assert_eq!(job(200, r#"{"status":"queued"}"#), running(None));
        assert_eq!(
            job(200, r#"{"status":"running","progress":41.5}"#),
            running(Some(41.5))
        );
        assert_eq!(
            job(200, r#"{"status":"x","progress":"45 %"}"#),
            running(Some(45.0))
        );
        assert_eq!(job(200, r#"{"status":"x","progress":[]}"#), running(None));
        assert_eq!(
            job(200, r#"{"status":null,"progress":3}"#),
            running(Some(3.0))
        );
        assert_eq!(job(200, r#"{"status":null}"#), None);
        assert_eq!(job(200, r#"{"status":"Done"}"#), Some(JobStatus::Done));
        assert_eq!(job(303, r#"{"status":"done"}"#), Some(JobStatus::Done));
        assert_eq!(
            job(200, r#"{"status":"cancelled"}"#),
            Some(JobStatus::Failed)
        );
        assert_eq!(job(202, ""), None);
    }

    #[test]
    fn reads_words_that_are_numbers_or_booleans() {
        let reader = StatusReader {
            status: "/jobs/0/finished".parse().unwrap(),
            done: vec!["true".to_owned()],
            ..reader()
        };
        let read = read_with(&reader, 200, r#"{"jobs":[{"finished":true}]}"#);
        assert_eq!(read.unwrap().job, Some(JobStatus::Done));
        let missing = read_with(&reader, 200, r#"{"jobs":[{"a/b":1,"~":2}]}"#);
        assert_eq!(
            missing.unwrap_err(),
            "the response has nothing at `/jobs/0/finished`, expected the job's status; it has `/jobs/0/a~1b`, `/jobs/0/~0`"
        );
    }

    #[test]
    fn an_error_says_how_the_job_ended_but_not_with_the_word_error() {
        assert_eq!(job(429, r#"{"status":"done"}"#), Some(JobStatus::Done));
        assert_eq!(
            job(500, r#"{"status":"cancelled"}"#),
            Some(JobStatus::Failed)
        );
        assert_eq!(job(500, r#"{"status":"error"}"#), None);
        assert_eq!(job(500, r#"{"status":"running"}"#), None);
        assert_eq!(job(502, "<html>"), None);
    }

    #[test]
    fn a_success_without_a_status_says_what_was_expected() {
        assert_eq!(
            problem(200, "<html>"),
            "the body of HTTP 200 OK is no JSON, expected JSON"
        );
        assert_eq!(problem(200, ""), "HTTP 200 OK has no body, expected JSON");
        assert_eq!(
            problem(200, r#"{"state":"done","id":7}"#),
            "the response has nothing at `/status`, expected the job's status; it has `/id`, `/state`"
        );
        assert_eq!(
            problem(200, "[]"),
            "the response has nothing at `/status`, expected the job's status"
        );
        assert_eq!(
            problem(200, r#"{"status":{"a":1}}"#),
            "`/status` is an object, expected a text, a number or a boolean"
        );
        assert_eq!(
            problem(302, "moved"),
            "HTTP 302 points to `/other`, expected a status; redirects are not followed"
        );
    }

    #[test]
    fn a_pointer_begins_with_a_slash_and_escapes_tildes() {
        for good in ["", "/", "/a/0/b", "/a~1b~0c"] {
            assert!(good.parse::<JsonPointer>().is_ok(), "{good}");
        }
        for bad in ["status", "$.status", "/a~2", "/a~"] {
            assert!(bad.parse::<JsonPointer>().is_err(), "{bad}");
        }
    }
}
