//! The file of `--jsonl`: a line of JSON for every URL that has ended.
//!
//! With a state file, the n-th line is the n-th URL that ended in the state. The state is written
//! first, so after a crash the file may only lack lines at its end; they are written when it is resumed.
//! A file with other lines belongs to another fetch and is left as it is.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A line of JSON for every URL that has ended.
pub(super) struct Jsonl {
    target: Target,
}

enum Target {
    File {
        file: File,
        /// The length of the complete lines.
        end: u64,
    },
    /// Stdout, a pipe or a device.
    Stream(Box<dyn Write + Send>),
}

impl std::fmt::Debug for Jsonl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jsonl").finish_non_exhaustive()
    }
}

/// Why lines cannot be written to a file.
#[derive(Debug, Error)]
pub enum JsonlError {
    /// It cannot be opened, read or written.
    #[error("cannot write `{}`", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The state cannot be read.
    #[error("cannot read the state")]
    State(#[source] io::Error),
    /// A line is not the one that the state has for it.
    #[error("line {line} of `{}` is not from the fetch of this state", path.display())]
    OtherFetch {
        /// The file.
        path: PathBuf,
        /// Its number, counted from 1.
        line: u64,
    },
}

impl Jsonl {
    /// Writes to a new file, or over one that is there.
    ///
    /// # Errors
    ///
    /// That it cannot be opened.
    pub(super) fn create(path: &Path) -> Result<Self, JsonlError> {
        let error = io_error(path);
        let file = File::create(path).map_err(&error)?;
        let is_file = file.metadata().map_err(&error)?.is_file();
        Ok(match is_file {
            true => Self::new(Target::File { file, end: 0 }),
            false => Self::stream(Box::new(file)),
        })
    }

    /// Writes to a stream such as stdout.
    pub(super) fn stream(stream: Box<dyn Write + Send>) -> Self {
        Self::new(Target::Stream(stream))
    }

    /// Continues a file whose first lines are `ended`, those of the URLs that have ended, without their
    /// ends. Lines that are missing at its end are written.
    ///
    /// # Errors
    ///
    /// That the file has another line, or that it cannot be read or written.
    pub(super) fn resume(
        path: &Path,
        ended: impl IntoIterator<Item = io::Result<String>>,
    ) -> Result<Self, JsonlError> {
        let error = io_error(path);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).map_err(&error)?;
        let is_file = file.metadata().map_err(&error)?.is_file();
        if !is_file {
            let problem = "it is no file, so it cannot be continued";
            return Err(error(io::Error::other(problem)));
        }
        let other = |line| JsonlError::OtherFetch {
            path: path.to_owned(),
            line,
        };
        let mut reader = BufReader::with_capacity(64 << 10, &file);
        let mut end = 0;
        let mut ended = ended.into_iter();
        let mut missing = None;
        let mut number = 0;
        let mut found = Vec::new();
        for expected in ended.by_ref() {
            let expected = expected.map_err(JsonlError::State)? + "\n";
            number += 1;
            found.clear();
            // No more is read than the line may have.
            let max = expected.len() as u64;
            (&mut reader)
                .take(max)
                .read_until(b'\n', &mut found)
                .map_err(&error)?;
            if found != expected.as_bytes() {
                // A line that is incomplete is the last one.
                let is_last = reader.fill_buf().map_err(&error)?.is_empty();
                if !is_last || !expected.as_bytes().starts_with(&found) {
                    return Err(other(number));
                }
                missing = Some(expected);
                break;
            }
            end += max;
        }
        if number == 0 && !reader.fill_buf().map_err(&error)?.is_empty() {
            return Err(other(1));
        }
        // After a power cut the state may be the one that lacks its end. Those URLs are fetched again.
        file.set_len(end).map_err(&error)?;
        let mut writer = BufWriter::with_capacity(64 << 10, &file);
        writer.seek(SeekFrom::Start(end)).map_err(&error)?;
        if let Some(first) = missing {
            writer.write_all(first.as_bytes()).map_err(&error)?;
            end += first.len() as u64;
        }
        for line in ended {
            let line = line.map_err(JsonlError::State)? + "\n";
            writer.write_all(line.as_bytes()).map_err(&error)?;
            end += line.len() as u64;
        }
        writer.flush().map_err(&error)?;
        drop(writer);
        Ok(Self::new(Target::File { file, end }))
    }

    fn new(target: Target) -> Self {
        Self { target }
    }

    /// Writes complete lines. After an error a file has complete lines only.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub(super) fn write_lines(&mut self, lines: &[u8]) -> io::Result<()> {
        match &mut self.target {
            Target::File { file, end } => {
                if let Err(error) = file.write_all(lines) {
                    // A second error is the same one.
                    _ = file.set_len(*end);
                    _ = file.seek(SeekFrom::Start(*end));
                    return Err(error);
                }
                *end += lines.len() as u64;
                Ok(())
            }
            Target::Stream(stream) => {
                stream.write_all(lines)?;
                stream.flush()
            }
        }
    }
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> JsonlError {
    move |source| JsonlError::Io {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::super::UrlRecord;
    use super::*;

    fn record(number: usize) -> UrlRecord {
        UrlRecord {
            url: format!("http://a.example/{number}"),
            ..UrlRecord::default()
        }
    }

    fn line(number: usize) -> String {
        serde_json::to_string(&record(number)).unwrap() + "\n"
    }

    fn lines(count: usize) -> Vec<String> {
        let line = |number| serde_json::to_string(&record(number)).unwrap();
        (0..count).map(line).collect()
    }

    fn text(count: usize) -> String {
        lines(count).into_iter().map(|line| line + "\n").collect()
    }

    fn resume(path: &Path, ended: usize) -> Result<Jsonl, JsonlError> {
        Jsonl::resume(path, lines(ended).into_iter().map(Ok))
    }

    /// Whatever a crash left of the file, it is completed.
    #[test]
    fn completes_a_file_cut_at_any_byte() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let whole = text(4);
        for length in 0..=whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let mut jsonl = resume(&path, 4).unwrap();
            jsonl.write_lines(line(4).as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text(5));
        }
    }

    #[test]
    fn refuses_lines_of_another_fetch() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let other = [
            "notes\n".to_owned(),
            text(1) + "{\n" + &text(1),
            text(2).replace("/1", "/7"),
            "notes".to_owned(),
        ];
        let mut errors = Vec::new();
        for text in other {
            std::fs::write(&path, &text).unwrap();
            let error = resume(&path, 3).unwrap_err().to_string();
            errors.push(error.replace(path.to_str().unwrap(), "FILE"));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        std::fs::write(&path, "notes\n").unwrap();
        assert!(resume(&path, 0).is_err());
        insta::assert_snapshot!(errors.join("\n"), @"
        line 1 of `FILE` is not from the fetch of this state
        line 2 of `FILE` is not from the fetch of this state
        line 2 of `FILE` is not from the fetch of this state
        line 1 of `FILE` is not from the fetch of this state
        ");
    }

    /// They are fetched again.
    #[test]
    fn drops_lines_that_the_state_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        std::fs::write(&path, text(5)).unwrap();
        drop(resume(&path, 3).unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text(3));
    }

    #[test]
    fn creates_over_an_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        std::fs::write(&path, "old\n").unwrap();
        let mut jsonl = Jsonl::create(&path).unwrap();
        jsonl.write_lines(line(0).as_bytes()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text(1));
    }

    #[test]
    fn a_full_device_is_an_error() {
        let mut jsonl = Jsonl::create(Path::new("/dev/full")).unwrap();
        let error = jsonl.write_lines(line(0).as_bytes()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
