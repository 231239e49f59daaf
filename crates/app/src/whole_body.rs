//! Reading a body into one buffer.

use std::pin::pin;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body;

/// Reads a body to its end; `None` if it is longer than `most`. Its pieces are copied: each is a slice of
/// the buffer that it was read into, and as long as it is kept, all of that is.
pub(crate) async fn read_whole<B: Body<Data = Bytes>>(
    body: B,
    most: u64,
) -> Result<Option<Bytes>, B::Error> {
    let mut body = pin!(body);
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        if let Ok(piece) = frame?.into_data() {
            if whole.len().saturating_add(piece.len()) as u64 > most {
                return Ok(None);
            }
            whole.extend_from_slice(&piece);
        }
    }
    Ok(Some(whole.freeze()))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll};

    use hyper::body::Frame;

    use super::*;

    /// So many pieces of two bytes, each from a buffer of its own. Fails if two of them are kept.
    struct Pieces(usize, Arc<()>);

    struct Counted {
        _count: Arc<()>,
    }

    impl AsRef<[u8]> for Counted {
        fn as_ref(&self) -> &[u8] {
            b"ab"
        }
    }

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            assert_eq!(Arc::strong_count(&self.1), 1, "a piece is kept");
            if self.0 == 0 {
                return Poll::Ready(None);
            }
            self.0 -= 1;
            let piece = Bytes::from_owner(Counted {
                _count: Arc::clone(&self.1),
            });
            Poll::Ready(Some(Ok(Frame::data(piece))))
        }
    }

    fn read(pieces: usize, most: u64) -> Option<Bytes> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let body = Pieces(pieces, Arc::default());
        runtime.block_on(read_whole(body, most)).unwrap()
    }

    #[test]
    fn keeps_none_of_the_pieces() {
        assert_eq!(read(1000, 2000).unwrap(), "ab".repeat(1000));
        assert_eq!(read(0, 0).unwrap(), "");
    }

    #[test]
    fn ends_when_it_is_too_long() {
        assert_eq!(read(3, 5), None);
    }
}
