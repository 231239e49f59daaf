//! The encodings of bodies: each takes a piece of its input and fills a piece of a buffer.

use brotli::enc::StandardAlloc;
use brotli::{BrotliDecompressStream, BrotliResult, BrotliState};
use flate2::{Crc, Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, InBuffer, Operation, OutBuffer};

use super::Encoding;

/// What one step did: bytes of the input that it took, bytes of the buffer that it filled.
pub(super) struct Step {
    pub(super) consumed: usize,
    pub(super) produced: usize,
}

impl Step {
    const fn skip(consumed: usize) -> Self {
        Self {
            consumed,
            produced: 0,
        }
    }
}

/// One encoding, undone step by step.
pub(super) enum Codec {
    Gzip(Box<Gzip>),
    Deflate(Box<Deflate>),
    Brotli(Box<Brotli>),
    Zstd(Box<Zstd>),
}

impl Codec {
    pub(super) fn new(encoding: Encoding) -> Option<Self> {
        Some(match encoding {
            Encoding::Gzip => Self::Gzip(Box::new(Gzip::new())),
            Encoding::Deflate => Self::Deflate(Box::new(Deflate::Start(None))),
            Encoding::Brotli => Self::Brotli(Box::new(Brotli::new())),
            Encoding::Zstd => Self::Zstd(Box::new(Zstd::new()?)),
        })
    }

    /// Takes as much of the input, and fills as much of the buffer, as it can; `None` for bad input.
    pub(super) fn step(&mut self, input: &[u8], buffer: &mut [u8]) -> Option<Step> {
        match self {
            Self::Gzip(gzip) => gzip.step(input, buffer),
            Self::Deflate(deflate) => deflate.step(input, buffer),
            Self::Brotli(brotli) => brotli.step(input, buffer),
            Self::Zstd(zstd) => zstd.step(input, buffer),
        }
    }

    /// Whether the data may end here.
    pub(super) const fn is_whole(&self) -> bool {
        match self {
            Self::Gzip(gzip) => gzip.is_whole(),
            Self::Deflate(deflate) => matches!(**deflate, Deflate::End),
            Self::Brotli(brotli) => brotli.is_whole,
            Self::Zstd(zstd) => zstd.is_whole,
        }
    }
}

/// Members of gzip data, one after the other (RFC 1952).
pub(super) struct Gzip {
    part: GzipPart,
    /// What has arrived of a member's head or trailer.
    held: Vec<u8>,
    inflate: Decompress,
    crc: Crc,
    has_member: bool,
}

/// What comes next in gzip data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GzipPart {
    Head,
    Body,
    Trailer,
    /// What follows after a whole member and is no member: ignored, as browsers do.
    Rest,
}

impl Gzip {
    fn new() -> Self {
        Self {
            part: GzipPart::Head,
            held: Vec::new(),
            inflate: Decompress::new(false),
            crc: Crc::new(),
            has_member: false,
        }
    }

    const fn is_whole(&self) -> bool {
        match self.part {
            GzipPart::Head => self.has_member && self.held.is_empty(),
            GzipPart::Rest => true,
            GzipPart::Body | GzipPart::Trailer => false,
        }
    }

    fn step(&mut self, input: &[u8], buffer: &mut [u8]) -> Option<Step> {
        match self.part {
            GzipPart::Head => self.read_head(input),
            GzipPart::Body => {
                let (step, is_end) = inflate(&mut self.inflate, input, buffer)?;
                self.crc.update(&buffer[..step.produced]);
                if is_end {
                    self.part = GzipPart::Trailer;
                }
                Some(step)
            }
            GzipPart::Trailer => self.read_trailer(input),
            GzipPart::Rest => Some(Step::skip(input.len())),
        }
    }

    fn read_head(&mut self, input: &[u8]) -> Option<Step> {
        let earlier = self.held.len();
        let room = MAX_GZIP_HEAD - earlier;
        self.held.extend_from_slice(&input[..input.len().min(room)]);
        match gzip_head(&self.held) {
            GzipHead::Whole(len) => {
                self.held.clear();
                self.inflate.reset(false);
                self.crc.reset();
                self.part = GzipPart::Body;
                Some(Step::skip(len - earlier))
            }
            GzipHead::Part if self.held.len() < MAX_GZIP_HEAD => Some(Step::skip(input.len())),
            GzipHead::Other if self.has_member => {
                self.part = GzipPart::Rest;
                Some(Step::skip(input.len()))
            }
            GzipHead::Part | GzipHead::Other => None,
        }
    }

    fn read_trailer(&mut self, input: &[u8]) -> Option<Step> {
        let taken = input.len().min(8 - self.held.len());
        self.held.extend_from_slice(&input[..taken]);
        if let Ok(trailer) = <[u8; 8]>::try_from(&self.held[..]) {
            let is_intact = trailer[..4] == self.crc.sum().to_le_bytes()
                && trailer[4..] == self.crc.amount().to_le_bytes();
            if !is_intact {
                return None;
            }
            self.held.clear();
            self.has_member = true;
            self.part = GzipPart::Head;
        }
        Some(Step::skip(taken))
    }
}

/// The longest head of a gzip member, with a file's name and a comment.
pub(super) const MAX_GZIP_HEAD: usize = 4 * 1024;

enum GzipHead {
    /// It has this length.
    Whole(usize),
    /// The rest of it is missing.
    Part,
    /// It is none.
    Other,
}

fn gzip_head(bytes: &[u8]) -> GzipHead {
    let magic = [0x1f, 0x8b, 8];
    if bytes.iter().zip(magic).any(|(&byte, magic)| byte != magic) {
        return GzipHead::Other;
    }
    match bytes.get(3) {
        Some(flags) if flags & 0b1110_0000 != 0 => GzipHead::Other,
        Some(&flags) => gzip_head_len(bytes, flags).map_or(GzipHead::Part, GzipHead::Whole),
        None => GzipHead::Part,
    }
}

fn gzip_head_len(bytes: &[u8], flags: u8) -> Option<usize> {
    let [has_crc, has_extra, has_name, has_comment] = [1, 2, 3, 4].map(|bit| flags >> bit & 1 == 1);
    let mut len = 10;
    if has_extra {
        let extra = bytes.get(len..len + 2)?;
        len += 2 + usize::from(u16::from_le_bytes([extra[0], extra[1]]));
    }
    for has_text in [has_name, has_comment] {
        if has_text {
            len += bytes.get(len..)?.iter().position(|&byte| byte == 0)? + 1;
        }
    }
    if has_crc {
        len += 2;
    }
    (bytes.len() >= len).then_some(len)
}

/// What HTTP calls `deflate`: data of zlib by the RFC, bare deflate data by some servers.
pub(super) enum Deflate {
    /// Nothing, or the first byte: it takes two to see which.
    Start(Option<u8>),
    Data(Decompress),
    End,
}

impl Deflate {
    fn step(&mut self, input: &[u8], buffer: &mut [u8]) -> Option<Step> {
        match self {
            Self::Start(None) => {
                *self = Self::Start(input.first().copied());
                Some(Step::skip(input.len().min(1)))
            }
            Self::Start(Some(first)) => {
                let first = *first;
                let Some(&second) = input.first() else {
                    return Some(Step::skip(0));
                };
                let is_zlib = first & 15 == 8
                    && first >> 4 <= 7
                    && u16::from_be_bytes([first, second]).is_multiple_of(31);
                let mut data = Decompress::new(is_zlib);
                let (step, is_end) = inflate(&mut data, &[first, second], buffer)?;
                *self = if is_end { Self::End } else { Self::Data(data) };
                Some(Step {
                    consumed: 1,
                    ..step
                })
            }
            Self::Data(data) => {
                let (step, is_end) = inflate(data, input, buffer)?;
                if is_end {
                    *self = Self::End;
                }
                Some(step)
            }
            Self::End => Some(Step::skip(input.len())),
        }
    }
}

/// One step of inflating, and whether the data ended with it.
fn inflate(data: &mut Decompress, input: &[u8], buffer: &mut [u8]) -> Option<(Step, bool)> {
    let (consumed, produced) = (data.total_in(), data.total_out());
    let status = data.decompress(input, buffer, FlushDecompress::None).ok()?;
    let step = Step {
        consumed: usize::try_from(data.total_in() - consumed).ok()?,
        produced: usize::try_from(data.total_out() - produced).ok()?,
    };
    Some((step, status == Status::StreamEnd))
}

pub(super) struct Brotli {
    state: BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>,
    is_whole: bool,
}

impl Brotli {
    fn new() -> Self {
        let [bytes, words, codes] = [(); 3].map(|()| StandardAlloc::default());
        Self {
            // Strict: without the extension for windows of up to 1 GiB.
            state: BrotliState::new_strict(bytes, words, codes),
            is_whole: false,
        }
    }

    fn step(&mut self, input: &[u8], buffer: &mut [u8]) -> Option<Step> {
        if self.is_whole {
            return Some(Step::skip(input.len()));
        }
        let (mut left, mut consumed) = (input.len(), 0);
        let (mut room, mut produced, mut total) = (buffer.len(), 0, 0);
        let result = BrotliDecompressStream(
            &mut left,
            &mut consumed,
            input,
            &mut room,
            &mut produced,
            buffer,
            &mut total,
            &mut self.state,
        );
        match result {
            BrotliResult::ResultFailure => return None,
            BrotliResult::ResultSuccess => self.is_whole = true,
            BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {}
        }
        Some(Step { consumed, produced })
    }
}

pub(super) struct Zstd {
    decoder: zstd::stream::raw::Decoder<'static>,
    is_whole: bool,
}

impl Zstd {
    fn new() -> Option<Self> {
        let mut decoder = zstd::stream::raw::Decoder::new().ok()?;
        decoder
            .set_parameter(DParameter::WindowLogMax(MAX_ZSTD_WINDOW_LOG))
            .ok()?;
        Some(Self {
            decoder,
            is_whole: false,
        })
    }

    fn step(&mut self, input: &[u8], buffer: &mut [u8]) -> Option<Step> {
        if self.is_whole && input.is_empty() {
            // Asking on would begin another frame.
            return Some(Step::skip(0));
        }
        let mut input = InBuffer::around(input);
        let mut output = OutBuffer::around(buffer);
        let missing = self.decoder.run(&mut input, &mut output).ok()?;
        self.is_whole = missing == 0;
        Some(Step {
            consumed: input.pos(),
            produced: output.pos(),
        })
    }
}

/// 8 MiB, the largest window of zstd in HTTP (RFC 9659).
const MAX_ZSTD_WINDOW_LOG: u32 = 23;
