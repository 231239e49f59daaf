//! Tests of the replay driver.

mod model;

use super::*;

/// Echoes every line, or reports a problem for `bad`.
#[derive(Debug)]
struct Echo;

impl Replay for Echo {
    fn line(&mut self, line: &str, out: &mut Vec<u8>) -> Result<(), Problem> {
        if line == "bad" {
            return Err(Problem::new("it is bad", "write something good"));
        }
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
        Ok(())
    }
}

/// Records how much had been written at every flush.
#[derive(Default)]
struct Flushes {
    written: usize,
    flushed: Vec<usize>,
}

impl Write for Flushes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flushed.push(self.written);
        Ok(())
    }
}

fn feed_echo(input: impl BufRead) -> (String, Result<u64, Error>) {
    let mut output = Vec::new();
    let result = feed(&mut Echo, "stdin", input, &mut output);
    (String::from_utf8(output).unwrap(), result)
}

#[test]
fn accepts_any_line_ending() {
    let (output, result) = feed_echo(&b"one\r\ntwo\nthree"[..]);
    assert_eq!(output, "one\ntwo\nthree\n");
    assert_eq!(result.unwrap(), 3);
}

#[test]
fn accepts_lines_longer_than_the_buffer() {
    let (output, _) = feed_echo(io::BufReader::with_capacity(
        2,
        &b"a long line\nand more\n"[..],
    ));
    assert_eq!(output, "a long line\nand more\n");
}

#[test]
fn bad_line_ends_the_replay_with_its_number() {
    let (output, result) = feed_echo(&b"good\nbad\ngood\n"[..]);
    assert_eq!(output, "good\n");
    assert_eq!(
        result.unwrap_err().to_string(),
        "line 2 of stdin: it is bad"
    );
}

#[test]
fn invalid_utf8_is_a_bad_line() {
    let (_, result) = feed_echo(&b"good\n\xff\n"[..]);
    assert!(result.unwrap_err().to_string().starts_with("line 2 of "));
}

#[test]
fn flushes_output_before_a_read_that_may_block() {
    // Two whole lines and the start of a third arrive at once, its end later.
    let input = io::Read::chain(&b"1\n2\n3"[..], &b"3\n"[..]);
    let mut output = Flushes::default();
    feed(&mut Echo, "stdin", io::BufReader::new(input), &mut output).unwrap();
    assert_eq!(output.flushed, [0, 4, 7, 7]);
}
