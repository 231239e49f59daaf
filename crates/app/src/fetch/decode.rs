//! Decodes the content encodings of a body, piece by piece.
//!
//! A body that is small on the wire can be huge when decoded, so every stage has two limits: on its
//! length, and on how much it grows. A stage has one output buffer, and the window that its encoding
//! needs: 32 KiB for gzip, at most 8 MiB for zstd and 16 MiB for brotli.

mod codec;

use std::fmt;

use codec::Codec;

/// The encodings that are asked for. `deflate` is decoded too, but servers disagree on what it is.
pub(crate) const ACCEPT_ENCODING: &str = "gzip, br, zstd";

/// Decodes one body.
pub(crate) struct Decoder {
    /// In the order in which they are undone: the last that was applied first.
    stages: Vec<Stage>,
    max_bytes: u64,
    /// Bytes of a body without an encoding.
    passed: u64,
}

impl Decoder {
    /// A decoder for a body with this `Content-Encoding`, which may become `max_bytes` long.
    ///
    /// # Errors
    ///
    /// If an encoding is unknown, or there are more than three.
    pub(crate) fn new(content_encoding: Option<&str>, max_bytes: u64) -> Result<Self, DecodeError> {
        let mut stages = Vec::new();
        for name in content_encoding.unwrap_or_default().rsplit(',') {
            let Some(encoding) = Encoding::named(name.trim())? else {
                continue;
            };
            if stages.len() == MAX_STAGES {
                return Err(DecodeError::TooManyEncodings);
            }
            stages.push(Stage::new(encoding));
        }
        Ok(Self {
            stages,
            max_bytes,
            passed: 0,
        })
    }

    /// Decodes a piece of any length and hands on what becomes of it, in pieces again.
    ///
    /// # Errors
    ///
    /// If the body cannot be decoded or goes beyond a limit; then the decoder is of no use any more.
    pub(crate) fn write(
        &mut self,
        piece: &[u8],
        out: &mut impl FnMut(&[u8]),
    ) -> Result<(), DecodeError> {
        if self.stages.is_empty() {
            self.passed += piece.len() as u64;
            if self.passed > self.max_bytes {
                return Err(DecodeError::TooLarge {
                    max_bytes: self.max_bytes,
                });
            }
            out(piece);
            return Ok(());
        }
        run(&mut self.stages, piece, self.max_bytes, out)
    }

    /// Ends the body. An empty body is whole in every encoding, as after a `HEAD` request.
    ///
    /// # Errors
    ///
    /// If the end of an encoding is missing.
    pub(crate) fn finish(self) -> Result<(), DecodeError> {
        self.stages.iter().try_for_each(Stage::finish)
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder")
            .field("stages", &self.stages.len())
            .finish_non_exhaustive()
    }
}

/// Why a body cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// It has an encoding of this name.
    UnknownEncoding(String),
    /// It is encoded more often than three times.
    TooManyEncodings,
    /// It is no data of this encoding, or damaged.
    Corrupt(Encoding),
    /// It ends too early.
    Truncated(Encoding),
    /// It is longer than it may be, or becomes it.
    TooLarge {
        /// The limit.
        max_bytes: u64,
    },
    /// It is small and becomes huge: a compression bomb.
    TooExpanding,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownEncoding(name) => {
                write!(
                    f,
                    "the content encoding `{name}` is unknown: expected {ACCEPT_ENCODING}"
                )
            }
            Self::TooManyEncodings => {
                write!(f, "more than {MAX_STAGES} content encodings of one body")
            }
            Self::Corrupt(encoding) => write!(f, "the body is no {encoding} data, or damaged"),
            Self::Truncated(encoding) => {
                write!(f, "the {encoding} data of the body ends too early")
            }
            Self::TooLarge { max_bytes } => {
                write!(f, "the body is longer than {max_bytes} bytes")
            }
            Self::TooExpanding => write!(
                f,
                "the body becomes more than {MAX_EXPANSION} times longer when it is decoded"
            ),
        }
    }
}

impl std::error::Error for DecodeError {}

/// A content encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

impl Encoding {
    /// `None` for the encoding that changes nothing.
    fn named(name: &str) -> Result<Option<Self>, DecodeError> {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        match () {
            () if name.is_empty() || is("identity") => Ok(None),
            () if is("gzip") || is("x-gzip") => Ok(Some(Self::Gzip)),
            () if is("deflate") => Ok(Some(Self::Deflate)),
            () if is("br") => Ok(Some(Self::Brotli)),
            () if is("zstd") => Ok(Some(Self::Zstd)),
            () => Err(DecodeError::UnknownEncoding(
                name.chars().take(MAX_SHOWN_NAME).collect(),
            )),
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Brotli => "brotli",
            Self::Zstd => "zstd",
        })
    }
}

/// The most encodings of one body.
const MAX_STAGES: usize = 3;

/// How many times longer than its input the output of a stage may be, from this length on. Text
/// becomes ten times longer, the same line over and over some hundred times.
const MAX_EXPANSION: u64 = 1_000;
const EXPANSION_CHECKED_FROM: u64 = 1 << 20;

const MAX_SHOWN_NAME: usize = 40;

/// Hands a piece through the stages, each of which hands its output to the next.
fn run(
    stages: &mut [Stage],
    piece: &[u8],
    max_bytes: u64,
    out: &mut dyn FnMut(&[u8]),
) -> Result<(), DecodeError> {
    let Some((first, rest)) = stages.split_first_mut() else {
        out(piece);
        return Ok(());
    };
    first.write(piece, max_bytes, &mut |decoded| {
        run(rest, decoded, max_bytes, out)
    })
}

/// Where the output of a stage goes.
type Sink<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), DecodeError>;

/// One encoding that is undone.
struct Stage {
    encoding: Encoding,
    /// Created with the first byte: an empty body needs none.
    codec: Option<Codec>,
    buffer: Vec<u8>,
    consumed: u64,
    produced: u64,
}

impl Stage {
    const fn new(encoding: Encoding) -> Self {
        Self {
            encoding,
            codec: None,
            buffer: Vec::new(),
            consumed: 0,
            produced: 0,
        }
    }

    fn write(
        &mut self,
        mut input: &[u8],
        max_bytes: u64,
        sink: Sink<'_>,
    ) -> Result<(), DecodeError> {
        if input.is_empty() {
            return Ok(());
        }
        let encoding = self.encoding;
        let corrupt = || DecodeError::Corrupt(encoding);
        let codec = match &mut self.codec {
            Some(codec) => codec,
            none => {
                self.buffer = vec![0; BUFFER_LEN];
                none.insert(Codec::new(encoding).ok_or_else(corrupt)?)
            }
        };
        let buffer = &mut self.buffer;
        loop {
            let step = codec.step(input, buffer).ok_or_else(corrupt)?;
            input = &input[step.consumed..];
            self.consumed += step.consumed as u64;
            self.produced += step.produced as u64;
            // Input without any output has no end otherwise, such as empty gzip members.
            if self.produced > max_bytes || self.consumed > max_bytes.saturating_add(MAX_OVERHEAD) {
                return Err(DecodeError::TooLarge { max_bytes });
            }
            if self.produced > EXPANSION_CHECKED_FROM
                && self.produced / MAX_EXPANSION > self.consumed
            {
                return Err(DecodeError::TooExpanding);
            }
            if step.produced > 0 {
                sink(&buffer[..step.produced])?;
            }
            let is_stuck = step.consumed == 0 && step.produced == 0;
            if is_stuck && !input.is_empty() {
                return Err(corrupt());
            }
            if input.is_empty() && step.produced < buffer.len() {
                return Ok(());
            }
        }
    }

    fn finish(&self) -> Result<(), DecodeError> {
        match &self.codec {
            Some(codec) if !codec.is_whole() => Err(DecodeError::Truncated(self.encoding)),
            _ => Ok(()),
        }
    }
}

/// What a stage decodes at once.
const BUFFER_LEN: usize = 16 * 1024;

/// By how much the encoding of a short body may be longer than the body.
const MAX_OVERHEAD: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use proptest::prelude::*;

    use super::codec::MAX_GZIP_HEAD;
    use super::*;

    const MAX: u64 = 64 << 20;

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(data: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn deflate(data: &[u8]) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn brotli(data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut encoder = brotli::CompressorWriter::new(&mut out, 4096, 2, 16);
        encoder.write_all(data).unwrap();
        drop(encoder);
        out
    }

    fn zstd(data: &[u8]) -> Vec<u8> {
        zstd::encode_all(data, 3).unwrap()
    }

    /// Decodes what comes in pieces of these lengths, over and over.
    fn decode(encoding: &str, data: &[u8], pieces: &[usize]) -> Result<Vec<u8>, DecodeError> {
        decode_limited(encoding, data, pieces, MAX)
    }

    fn decode_limited(
        encoding: &str,
        mut data: &[u8],
        pieces: &[usize],
        max_bytes: u64,
    ) -> Result<Vec<u8>, DecodeError> {
        let mut decoder = Decoder::new(Some(encoding), max_bytes)?;
        let mut out = Vec::new();
        for &len in pieces.iter().cycle() {
            if data.is_empty() {
                break;
            }
            let (piece, rest) = data.split_at(len.clamp(1, data.len()));
            decoder.write(piece, &mut |decoded: &[u8]| out.extend_from_slice(decoded))?;
            data = rest;
        }
        decoder.finish()?;
        Ok(out)
    }

    /// An encoding and the function that applies it.
    type Encode = (&'static str, fn(&[u8]) -> Vec<u8>);

    const ENCODINGS: [Encode; 6] = [
        ("gzip", gzip),
        ("X-GZIP", gzip),
        ("deflate", zlib),
        ("deflate", deflate),
        ("br", brotli),
        ("zstd", zstd),
    ];

    fn text() -> Vec<u8> {
        let lines =
            (0..20_000_u32).map(|n| format!("line {} of a page\n", n.wrapping_mul(2_654_435_761)));
        lines.collect::<String>().into_bytes()
    }

    #[test]
    fn decodes_every_encoding() {
        for (name, encode) in ENCODINGS {
            for data in [&b""[..], b"a", b"hello hello hello", &text()] {
                for pieces in [&[1][..], &[usize::MAX], &[3, 1000, 7]] {
                    assert_eq!(decode(name, &encode(data), pieces).unwrap(), data, "{name}");
                }
            }
        }
    }

    #[test]
    fn decodes_several_encodings_in_reverse_order() {
        let data = text();
        let encoded = zstd(&brotli(&gzip(&data)));
        assert_eq!(
            decode("gzip, identity, br ,zstd", &encoded, &[100]).unwrap(),
            data
        );
        assert_eq!(decode("", &data, &[100]).unwrap(), data);
        assert_eq!(
            decode("gzip,gzip,gzip,gzip", &data, &[100]),
            Err(DecodeError::TooManyEncodings)
        );
    }

    #[test]
    fn reads_all_members_and_frames() {
        let mut members = gzip(b"one ");
        members.extend(gzip(b""));
        members.extend(gzip(b"two"));
        assert_eq!(decode("gzip", &members, &[1]).unwrap(), b"one two");
        members.extend([0; 100]);
        assert_eq!(decode("gzip", &members, &[9]).unwrap(), b"one two");
        let frames = [zstd(b"one "), zstd(b"two")].concat();
        assert_eq!(decode("zstd", &frames, &[1]).unwrap(), b"one two");
    }

    #[test]
    fn reads_every_field_of_a_gzip_head() {
        let body = gzip(b"hello")[10..].to_vec();
        let mut head = vec![0x1f, 0x8b, 8, 0b1_1111, 0, 0, 0, 0, 0, 255];
        head.extend(b"\x03\x00abcname\0comment\0cc");
        let whole = [head.clone(), body].concat();
        for len in [1, 2, 7, 100] {
            assert_eq!(decode("gzip", &whole, &[len]).unwrap(), b"hello");
        }
        head.truncate(15);
        head.extend([b'a'; MAX_GZIP_HEAD]);
        assert_eq!(
            decode("gzip", &head, &[100]),
            Err(DecodeError::Corrupt(Encoding::Gzip))
        );
    }

    #[test]
    fn an_empty_body_is_whole() {
        for (name, _) in ENCODINGS {
            assert_eq!(decode(name, b"", &[1]).unwrap(), b"");
        }
    }

    #[test]
    fn a_truncated_body_is_an_error() {
        let data = text();
        for (name, encode) in ENCODINGS {
            let encoded = encode(&data);
            for len in [1, 2, 11, encoded.len() / 2, encoded.len() - 1] {
                let result = decode(name, &encoded[..len], &[1000]);
                assert!(
                    matches!(result, Err(DecodeError::Truncated(_))),
                    "{name} {len}: {result:?}"
                );
            }
        }
    }

    #[test]
    fn a_damaged_body_is_an_error() {
        for (name, encode) in ENCODINGS {
            let result = decode(name, b"<!doctype html><p>not encoded at all</p>", &[7]);
            assert!(
                matches!(result, Err(DecodeError::Corrupt(_))),
                "{name}: {result:?}"
            );
            let mut encoded = encode(&text());
            let middle = encoded.len() / 2;
            encoded[middle] ^= 0x55;
            // Bare deflate and brotli have no checksum.
            if !matches!(name, "deflate" | "br" | "zstd") {
                assert!(decode(name, &encoded, &[1000]).is_err(), "{name}");
            }
        }
    }

    #[test]
    fn names_an_unknown_encoding() {
        let refused = Decoder::new(Some("gzip, compress"), MAX).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the content encoding `compress` is unknown: expected gzip, br, zstd"
        );
        let refused = Decoder::new(Some(&"x".repeat(1000)), MAX).unwrap_err();
        assert!(refused.to_string().len() < 120);
    }

    #[test]
    fn stops_at_the_limit() {
        let data = text();
        let limit = data.len() as u64;
        for (name, encode) in ENCODINGS
            .into_iter()
            .chain([("identity", (|data| data.to_vec()) as fn(&[u8]) -> Vec<u8>)])
        {
            let encoded = encode(&data);
            assert_eq!(
                decode_limited(name, &encoded, &[1000], limit).unwrap(),
                data
            );
            assert_eq!(
                decode_limited(name, &encoded, &[1000], limit - 1),
                Err(DecodeError::TooLarge {
                    max_bytes: limit - 1
                })
            );
        }
        let empty_members = gzip(b"").repeat(10_000);
        assert_eq!(
            decode_limited("gzip", &empty_members, &[1000], 1000),
            Err(DecodeError::TooLarge { max_bytes: 1000 })
        );
    }

    /// Feeds a bomb until it is refused; returns the error and how much was decoded before.
    fn explode(encoding: &str, bomb: &[u8], max_bytes: u64) -> (DecodeError, u64) {
        let mut decoder = Decoder::new(Some(encoding), max_bytes).unwrap();
        let mut decoded = 0;
        for piece in bomb.chunks(16 * 1024) {
            let result = decoder.write(piece, &mut |piece: &[u8]| decoded += piece.len() as u64);
            if let Err(error) = result {
                return (error, decoded);
            }
        }
        panic!("{encoding}: {decoded} bytes were decoded");
    }

    #[test]
    fn refuses_bombs_early() {
        let zeros = vec![0; 8 << 20];
        for (name, encode) in ENCODINGS {
            let bomb = encode(&zeros);
            let (error, decoded) = explode(name, &bomb, 1 << 40);
            assert_eq!(error, DecodeError::TooExpanding, "{name}");
            assert!(decoded <= 2 << 20, "{name}: {decoded}");
            let (error, decoded) = explode(name, &bomb, 1 << 19);
            assert_eq!(
                error,
                DecodeError::TooLarge { max_bytes: 1 << 19 },
                "{name}"
            );
            assert!(decoded <= 1 << 19, "{name}: {decoded}");
        }
        let nested = gzip(&gzip(&zeros));
        assert_eq!(
            explode("gzip, gzip", &nested, 1 << 40).0,
            DecodeError::TooExpanding
        );
    }

    #[test]
    fn refuses_windows_larger_than_browsers_take() {
        // A frame without a content size and a window of 2^27, as `zstd --long=27` writes.
        let long_zstd = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x88, 0x01, 0x00, 0x00];
        assert_eq!(
            decode("zstd", &long_zstd, &[99]),
            Err(DecodeError::Corrupt(Encoding::Zstd))
        );
        // The first bits that announce a window of 2^30.
        let large_brotli = [0x11, 0x1e, 0x03];
        assert_eq!(
            decode("br", &large_brotli, &[99]),
            Err(DecodeError::Corrupt(Encoding::Brotli))
        );
    }

    proptest! {
        // The encoder of brotli fills large tables in every case.
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_split_gives_the_same_bytes(
            data in prop::collection::vec(prop_oneof![Just(b'a'), any::<u8>()], 0..3_000),
            pieces in prop::collection::vec(1_usize..200, 1..20),
            encoding in 0..ENCODINGS.len(),
        ) {
            let (name, encode) = ENCODINGS[encoding];
            prop_assert_eq!(decode(name, &encode(&data), &pieces).unwrap(), data);
        }

        #[test]
        fn random_bytes_never_panic(
            data in prop::collection::vec(any::<u8>(), 0..2_000),
            pieces in prop::collection::vec(1_usize..200, 1..20),
            encoding in 0..ENCODINGS.len(),
        ) {
            if let Ok(decoded) = decode_limited(ENCODINGS[encoding].0, &data, &pieces, 100_000) {
                prop_assert!(decoded.len() <= 100_000);
            }
        }

        #[test]
        fn damaged_bytes_never_panic(
            data in prop::collection::vec(prop_oneof![Just(b'a'), any::<u8>()], 0..2_000),
            place in any::<prop::sample::Index>(),
            flip in 1_u8..,
            encoding in 0..ENCODINGS.len(),
        ) {
            let (name, encode) = ENCODINGS[encoding];
            let mut encoded = encode(&data);
            let index = place.index(encoded.len());
            encoded[index] ^= flip;
            let damaged = decode_limited(name, &encoded, &[50], 100_000);
            if name.eq_ignore_ascii_case("gzip") {
                prop_assert!(damaged.is_err() || damaged.as_ref() == Ok(&data));
            }
        }
    }
}
