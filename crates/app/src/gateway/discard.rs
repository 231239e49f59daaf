//! The rest of a request that was answered before its body was read.
//!
//! A connection that is closed while its caller still sends is reset, and the reset may overtake
//! the answer: the caller sees a broken connection instead of the reason. So the rest is read and
//! thrown away, up to a bound, while the answer is on its way; then the connection can be used on.

use std::pin::Pin;
use std::time::Duration;

use hyper::body::{Body, Incoming};

/// Reads a body to its end, or as far as that makes sense.
pub(super) fn discard(body: Incoming) {
    if !body.is_end_stream() {
        tokio::spawn(tokio::time::timeout(LONGEST, read(body)));
    }
}

async fn read(mut body: Incoming) {
    let mut left = MOST;
    while left > 0 {
        let next = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context));
        let Some(Ok(frame)) = next.await else {
            return;
        };
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        left = left.saturating_sub(length.max(1));
    }
}

/// More than most callers send, and soon read.
const MOST: u64 = 64 << 20;
const LONGEST: Duration = Duration::from_secs(10);
