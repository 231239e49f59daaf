//! The access log: a line for every request of the data plane, when its response has ended.
//!
//! Lines are made by the worker of the request and written by a thread of their own, from a bounded
//! queue. A disk that is too slow costs lines, never a request; how many is logged and
//! counted in the metrics, not in the file, so that every line of it is a request.
//!
//! Nothing in a line is secret or about a person: a path is redacted as everywhere, and the address of
//! the client, its `User-Agent` and its `Referer` are left out. The `combined` format has `-` in their
//! places.

use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Version;
use policy::time::WallTime;
use serde_json::{Value, json};
use tidegate::Clock;

use crate::log::{Log, Writer, rfc3339};
use crate::observe::FinishedRequest;

/// Writes lines to a sink. The thread ends when this is dropped and everything is written.
pub(crate) struct AccessLog {
    format: AccessFormat,
    clock: Clock,
    writer: Writer,
}

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessFormat {
    /// A JSON object for each line.
    Json,
    /// As other servers write it, with our fields behind.
    Combined,
}

impl AccessFormat {
    /// The format of this name in the settings; `None` for no access log.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name {
            "json" => Some(Self::Json),
            "combined" => Some(Self::Combined),
            _ => None,
        }
    }
}

impl AccessLog {
    /// How many lines wait for a slow sink before further ones are dropped: half a second of a busy
    /// server, and some 10 MB.
    pub(crate) const MAX_QUEUED: usize = 16_384;

    /// Writes lines to `sink`. Problems are reported in `log`.
    pub(crate) fn start(
        format: AccessFormat,
        sink: Box<dyn Write + Send>,
        log: &Log,
        clock: &Clock,
    ) -> Self {
        let sink = ReportingSink {
            sink: BufWriter::new(sink),
            log: log.clone(),
            has_failed: false,
        };
        let log = log.clone();
        let report = move |count| {
            log.access_log_gap(count);
            None
        };
        Self {
            format,
            clock: clock.clone(),
            writer: Writer::start("tidegate-access", Box::new(sink), Self::MAX_QUEUED, report),
        }
    }

    /// Writes the line of a request, or drops it if the sink is too slow.
    pub(crate) fn write(&self, request: &FinishedRequest) {
        let at = self.clock.wall_at(request.started);
        let line = match self.format {
            AccessFormat::Json => json_line(request, at),
            AccessFormat::Combined => combined_line(request, at),
        };
        self.writer.queue().push(line);
    }

    /// Waits until all lines so far are written, for a bounded time.
    pub(crate) fn flush(&self) {
        self.writer.flush(Log::FLUSH_TIMEOUT);
    }

    /// How many lines were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.writer.dropped()
    }
}

/// Opens a file to append to. Others may not read it: paths say what a program does.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o640).open(path)
}

/// A sink that several access logs in a row write to.
#[derive(Clone)]
pub(crate) struct SharedSink(Arc<Mutex<Box<dyn Write + Send>>>);

impl SharedSink {
    pub(crate) fn new(sink: Box<dyn Write + Send>) -> Self {
        Self(Arc::new(Mutex::new(sink)))
    }
}

impl Write for SharedSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut sink = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sink.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut sink = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sink.flush()
    }
}

/// A sink whose first failure is logged, and the first after it worked again.
struct ReportingSink<W: Write> {
    sink: BufWriter<W>,
    log: Log,
    has_failed: bool,
}

impl<W: Write> ReportingSink<W> {
    fn report<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result
            && !self.has_failed
        {
            self.log.access_log_failed(&error.to_string());
        }
        self.has_failed = result.is_err();
        result
    }
}

impl<W: Write> Write for ReportingSink<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Most writes only fill the buffer, which says nothing about the sink.
        let written = self.sink.write(bytes);
        match written {
            Ok(_) => written,
            Err(_) => self.report(written),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.sink.flush();
        self.report(flushed)
    }
}

fn json_line(request: &FinishedRequest, at: WallTime) -> String {
    let time = rfc3339(at);
    let text = |text: Option<&str>| text.map_or(Value::Null, Value::from);
    let fields: [(&str, Value); 16] = [
        ("time", time.into()),
        ("client", text(request.client.as_deref())),
        (
            "method",
            text(request.method.as_ref().map(|method| method.as_str())),
        ),
        ("route", (*request.route).into()),
        ("endpoint", text(request.endpoint.as_deref())),
        ("path", (*request.path).into()),
        ("status", request.status.into()),
        ("bytes", request.bytes.into()),
        ("attempts", request.attempts.into()),
        ("refused", request.refused().into()),
        ("wait_ms", millis(request.wait).into()),
        ("latency_ms", json!(request.latency().map(millis))),
        ("duration_ms", millis(request.duration()).into()),
        ("reason", text(request.reason())),
        ("request_id", request.request_id.as_str().into()),
        ("trace_id", format!("{:032x}", request.trace_id).into()),
    ];
    let mut line = String::with_capacity(512);
    let mut separator = '{';
    for (name, value) in fields {
        // Writing into a string cannot fail.
        _ = write!(line, "{separator}\"{name}\":{value}");
        separator = ',';
    }
    line.push_str("}\n");
    line
}

fn combined_line(request: &FinishedRequest, at: WallTime) -> String {
    let client = Field(request.client.as_deref());
    let method = request.method.as_ref().map(|method| method.as_str());
    let (method, path) = (Field(method), Quoted(&request.path));
    let version = version(request.version);
    let (status, bytes) = (request.status, request.bytes);
    let time = CommonTime(at);
    let latency = request.latency().map(|latency| millis(latency).to_string());
    format!(
        "- - {client} [{time}] \"{method} {path} {version}\" {status} {bytes} \"-\" \"-\" \
         route={} endpoint={} attempts={} refused={} wait_ms={} latency_ms={} duration_ms={} reason={} \
         request_id={} trace_id={:032x}\n",
        Field(Some(&request.route)),
        Field(request.endpoint.as_deref()),
        request.attempts,
        request.refused(),
        millis(request.wait),
        Field(latency.as_deref()),
        millis(request.duration()),
        Field(request.reason()),
        request.request_id,
        request.trace_id,
    )
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        _ => "HTTP/1.1",
    }
}

/// A word of a `combined` line; `-` for nothing.
struct Field<'a>(Option<&'a str>);

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None | Some("") => f.write_str("-"),
            Some(text) => Quoted(text).fmt(f),
        }
    }
}

/// Text between quotes of a `combined` line: what could end it or its field is escaped as nginx does
/// it.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '"' | '\\' | ' ' => write!(f, "\\x{:02X}", u32::from(c))?,
                c if c.is_control() => write!(f, "\\x{:02X}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// `15/Nov/2026:06:00:00 +0000`
struct CommonTime(WallTime);

impl fmt::Display for CommonTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = rfc3339(self.0);
        // `2026-11-15T06:00:00.123Z`, in which every part has its place.
        let (year, month, day, time) = (&text[..4], &text[5..7], &text[8..10], &text[11..19]);
        let month = month.parse::<usize>().unwrap_or(1);
        let month = MONTHS[(month - 1).min(11)];
        write!(f, "{day}/{month}/{year}:{time} +0000")
    }
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// In whole milliseconds, rounded up as every wait.
fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
