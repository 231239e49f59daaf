//! URLs from a list, one a line.

use std::io::{self, BufRead, BufReader, Read};
use std::thread;

use tokio::sync::mpsc;

/// A list that is read in a thread of its own: reading stdin would block everything else.
#[derive(Debug)]
pub(super) struct List {
    batches: mpsc::Receiver<io::Result<Vec<String>>>,
}

/// Lines handed over at once.
const BATCH: usize = 1000;

/// Batches that wait; then reading waits.
const MAX_BATCHES: usize = 4;

/// Longer lines are cut; they are no URL.
const MAX_LINE: u64 = 16 << 10;

impl List {
    pub(super) fn new(source: Box<dyn Read + Send>) -> Self {
        let mut source = BufReader::with_capacity(64 << 10, source);
        let (sender, batches) = mpsc::channel(MAX_BATCHES);
        let read = move || {
            loop {
                let batch = read_batch(&mut source);
                let is_last = batch.as_ref().map_or(true, Vec::is_empty);
                if sender.blocking_send(batch).is_err() || is_last {
                    return;
                }
            }
        };
        // If there is no thread for it, the list ends at once, with an error.
        _ = thread::Builder::new()
            .name("tidegate-list".to_owned())
            .spawn(read);
        Self { batches }
    }

    /// The next lines; none at the end.
    pub(super) async fn next(&mut self) -> io::Result<Vec<String>> {
        let batch = self.batches.recv().await;
        batch.unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()))
    }
}

/// Lines with something on them, a batch or up to what is there: a list that is typed or piped is not
/// waited for.
fn read_batch(source: &mut BufReader<impl Read>) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    let mut line = Vec::new();
    while lines.len() < BATCH {
        line.clear();
        let length = source
            .by_ref()
            .take(MAX_LINE)
            .read_until(b'\n', &mut line)?;
        if length == 0 {
            break;
        }
        if length as u64 == MAX_LINE {
            skip_line(source)?;
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_start_matches('\u{feff}').trim();
        if !text.is_empty() && !text.starts_with('#') {
            lines.push(text.to_owned());
            if memchr::memchr(b'\n', source.buffer()).is_none() {
                break;
            }
        }
    }
    Ok(lines)
}

fn skip_line(source: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = source.fill_buf()?;
        let (length, is_end) = match memchr::memchr(b'\n', buffer) {
            Some(end) => (end + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        source.consume(length);
        if is_end {
            return Ok(());
        }
    }
}
