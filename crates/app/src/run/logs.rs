//! What programs print, in a file per item.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

use super::item::Item;

/// The folder of the files.
#[derive(Debug)]
pub(super) struct Logs(PathBuf);

impl Logs {
    /// Makes the folder if need be.
    pub(super) fn open(folder: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    /// The file of an item, with a heading for the attempt.
    pub(super) fn attempt(&self, item: &Item) -> io::Result<AttemptLog> {
        let path = self.0.join(name(item));
        let mut file = OpenOptions::new().append(true).create(true).open(path)?;
        writeln!(file, "--- attempt {} of {}", item.attempts + 1, item.text)?;
        Ok(AttemptLog {
            file,
            left: MAX_LOG,
        })
    }
}

/// The file of an item while an attempt writes to it.
#[derive(Debug)]
pub(super) struct AttemptLog {
    file: File,
    left: usize,
}

/// Of one attempt. The end of the output is judged whether or not it is written.
const MAX_LOG: usize = 16 << 20;

impl AttemptLog {
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.left == 0 {
            return Ok(());
        }
        let written = bytes.get(..self.left).unwrap_or(bytes);
        self.file.write_all(written)?;
        self.left -= written.len();
        match self.left {
            0 => self.file.write_all(b"\n--- cut off after 16 MiB\n"),
            _ => Ok(()),
        }
    }
}

/// The number in the list, and as much of the item as a file name may have.
fn name(item: &Item) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let plain = item.text.chars().take(MAX_NAME);
    let plain: String = plain.map(|c| if is_plain(c) { c } else { '_' }).collect();
    format!("{:06}-{plain}.log", item.number)
}

/// With the number well below the 255 bytes of file systems.
const MAX_NAME: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn item(text: &str) -> Item {
        Item {
            number: 7,
            occurrence: 1,
            attempts: 0,
            text: text.into(),
        }
    }

    #[test]
    fn names_are_safe() {
        for (text, expected) in [
            ("a.txt", "000007-a.txt.log"),
            ("../../etc/passwd", "000007-.._.._etc_passwd.log"),
            (
                "https://a.example/?b=c",
                "000007-https___a.example__b_c.log",
            ),
            ("日本\n", "000007-___.log"),
        ] {
            assert_eq!(name(&item(text)), expected);
        }
        assert_eq!(name(&item(&"x".repeat(5000))).len(), 7 + MAX_NAME + 4);
    }

    #[test]
    fn attempts_are_appended_and_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let logs = Logs::open(folder.path().join("a/b")).unwrap();
        logs.attempt(&item("x")).unwrap().write(b"one\n").unwrap();
        let mut log = logs.attempt(&item("x")).unwrap();
        log.left = 3;
        log.write(b"two and more").unwrap();
        log.write(b"nothing").unwrap();
        let text = fs::read_to_string(folder.path().join("a/b/000007-x.log")).unwrap();
        assert_eq!(
            text,
            "--- attempt 1 of x\none\n--- attempt 1 of x\ntwo\n--- cut off after 16 MiB\n"
        );
    }
}
