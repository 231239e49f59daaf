//! What became of the first URLs, for people.

use std::time::Duration;

use app::fetch::UrlRecord;
use app::redact;
use policy::duration::Rounded;

use super::screen::size;
use crate::output;

/// The first URLs, and the first that failed.
#[derive(Debug, Default)]
pub(super) struct Results {
    first: Vec<UrlRecord>,
    failed: Vec<UrlRecord>,
    total: u64,
    total_failed: u64,
}

/// So many fit on a screen.
const MAX_LISTED: usize = 20;

impl Results {
    pub(super) fn add(&mut self, record: &UrlRecord) {
        self.total += 1;
        if self.first.len() < MAX_LISTED {
            self.first.push(record.clone());
        }
        if record.error.is_some() {
            self.total_failed += 1;
            if self.failed.len() < MAX_LISTED {
                self.failed.push(record.clone());
            }
        }
    }

    /// All URLs if they are few, else those that failed.
    pub(super) fn text(&self) -> String {
        let are_few = self.total <= MAX_LISTED as u64;
        let (listed, total) = match are_few {
            true => (&self.first, self.total),
            false => (&self.failed, self.total_failed),
        };
        if listed.is_empty() {
            return String::new();
        }
        let mut text = output::table(&["STATUS", "SIZE", "TIME", "URL"], listed.iter().map(row));
        let more = total - listed.len() as u64;
        if more > 0 {
            text.push_str(&format!("and {more} more that failed\n"));
        }
        text
    }
}

fn row(record: &UrlRecord) -> Vec<String> {
    let status = record.status.map(|status| status.to_string());
    let url = redact::Url::new(&record.url).to_string();
    vec![
        status.unwrap_or_else(|| "-".to_owned()),
        size(record.bytes),
        record.latency_ms.map_or_else(|| "-".to_owned(), latency),
        url + &end(record),
    ]
}

fn latency(ms: u64) -> String {
    match ms < 10_000 {
        true => format!("{ms}ms"),
        false => Rounded(Duration::from_millis(ms)).to_string(),
    }
}

/// What else is known of its end.
fn end(record: &UrlRecord) -> String {
    let message = record.message.as_deref();
    let message = message.map(|message| redact::Text::new(message).to_string());
    match (record.error, message) {
        (Some(error), Some(message)) => format!("  {error}: {message}"),
        (Some(error), None) => format!("  {error}"),
        (None, _) if record.not_modified => "  unchanged".to_owned(),
        (None, _) => String::new(),
    }
}
