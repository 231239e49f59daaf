//! The folder of `--out`: a file for each body, and an index.
//!
//! A body is written to a temporary file and renamed when it is complete, so that no name ever stands for
//! half a body. Later runs find name and validators in the index, and a file is used again only if its
//! length is the one that was stored: bodies are not synced to the disk one by one, and what a power
//! cut destroys is fetched again.
//!
//! Everything below the folder is opened segment by segment and without following symbolic links, so
//! that no link in it can lead a write to another place. A lock file makes the folder that of one
//! process.

mod index;
mod name;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use http::HeaderValue;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use thiserror::Error;
use url::Url;

use self::index::{Index, IndexEntry};

/// Why a folder cannot be used.
#[derive(Debug, Error)]
pub enum FolderError {
    /// It cannot be created, read or written.
    #[error("cannot write to the folder `{}`", path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another process uses it.
    #[error("the folder `{}` is in use by another fetch", .0.display())]
    InUse(PathBuf),
}

/// Checks that bodies can be stored in a folder. It is created if need be.
///
/// # Errors
///
/// That it cannot be created or written, or that another process uses it.
pub fn check_folder(path: &Path) -> Result<(), FolderError> {
    let (root, _lock) = Folder::lock(path)?;
    let check = || {
        open_folder(&root, TEMPORARY)?;
        open_file(&root, INDEX, OFlags::RDWR | OFlags::CREATE)
    };
    check().map(drop).map_err(|source| FolderError::Io {
        path: path.to_owned(),
        source,
    })
}

/// A folder for bodies.
#[derive(Debug)]
pub(crate) struct Folder(Rc<OpenFolder>);

#[derive(Debug)]
struct OpenFolder {
    root: OwnedFd,
    /// The folder of temporary files.
    temporary: OwnedFd,
    index: RefCell<Index>,
    /// Folders below the root that were used lately.
    open: RefCell<HashMap<String, Rc<OwnedFd>>>,
    next_temporary: Cell<u64>,
    _lock: File,
}

/// What a request can be made conditional with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Validators {
    /// For `If-None-Match`, weak or strong.
    pub(crate) etag: Option<HeaderValue>,
    /// For `If-Modified-Since`.
    pub(crate) last_modified: Option<HeaderValue>,
}

/// A body that an earlier run stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) file: String,
    pub(crate) sha256: String,
    pub(crate) bytes: u64,
    pub(crate) content_type: Option<String>,
    pub(crate) title: Option<String>,
}

/// What the index says about a body that is complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredBody {
    pub(crate) content_type: Option<String>,
    pub(crate) etag: Option<String>,
    pub(crate) last_modified: Option<String>,
    pub(crate) sha256: String,
    pub(crate) bytes: u64,
    pub(crate) title: Option<String>,
}

impl Folder {
    /// Opens a folder, a new one if there is none, and removes what a crash left.
    ///
    /// # Errors
    ///
    /// That it cannot be created or written, or that another process uses it.
    pub(crate) fn open(path: &Path) -> Result<Self, FolderError> {
        let (root, lock) = Self::lock(path)?;
        Self::prepare(root, lock).map_err(|source| FolderError::Io {
            path: path.to_owned(),
            source,
        })
    }

    /// Opens the folder itself, and takes its lock.
    fn lock(path: &Path) -> Result<(OwnedFd, File), FolderError> {
        let error = |source| FolderError::Io {
            path: path.to_owned(),
            source,
        };
        if path.exists() && !path.is_dir() {
            return Err(error(io::ErrorKind::NotADirectory.into()));
        }
        fs::create_dir_all(path).map_err(error)?;
        let root = OwnedFd::from(File::open(path).map_err(error)?);
        let lock = open_file(&root, LOCK, OFlags::RDWR | OFlags::CREATE).map_err(error)?;
        match lock.try_lock() {
            Ok(()) => Ok((root, lock)),
            Err(TryLockError::WouldBlock) => Err(FolderError::InUse(path.to_owned())),
            Err(TryLockError::Error(source)) => Err(error(source)),
        }
    }

    fn prepare(root: OwnedFd, lock: File) -> io::Result<Self> {
        let temporary = open_folder(&root, TEMPORARY)?;
        for entry in Dir::read_from(&temporary)? {
            let entry = entry?;
            if ![&b"."[..], b".."].contains(&entry.file_name().to_bytes()) {
                rustix::fs::unlinkat(&temporary, entry.file_name(), AtFlags::empty())?;
            }
        }
        let mut index = Index::read(open_file(&root, INDEX, OFlags::RDWR | OFlags::CREATE)?)?;
        if index.is_wasteful() {
            let copy = open_file(&temporary, INDEX, OFlags::RDWR | OFlags::CREATE)?;
            index.copy(&copy)?;
            copy.sync_all()?;
            rustix::fs::renameat(&temporary, INDEX, &root, INDEX)?;
            index = Index::read(copy)?;
        }
        Ok(Self(Rc::new(OpenFolder {
            root,
            temporary,
            index: RefCell::new(index),
            open: RefCell::new(HashMap::new()),
            next_temporary: Cell::new(0),
            _lock: lock,
        })))
    }

    /// What a request for the URL can be made conditional with; `None` if no body is stored.
    pub(crate) fn validators(&self, url: &str) -> Option<Validators> {
        let entry = self.0.find(url)?;
        let value = |text: Option<String>| HeaderValue::try_from(text?).ok();
        let validators = Validators {
            etag: value(entry.etag),
            last_modified: value(entry.last_modified),
        };
        (validators != Validators::default()).then_some(validators)
    }

    /// The body that is stored for the URL.
    pub(crate) fn stored(&self, url: &str) -> Option<Stored> {
        let entry = self.0.find(url)?;
        Some(Stored {
            file: entry.file,
            sha256: entry.sha256,
            bytes: entry.bytes,
            content_type: entry.content_type,
            title: entry.title,
        })
    }

    /// Opens the body that is stored for the URL.
    pub(crate) fn open_body(&self, url: &str) -> io::Result<File> {
        let entry = self.0.find(url).ok_or(io::ErrorKind::NotFound)?;
        self.0.open_stored(&entry)
    }

    /// Starts to store the body of a URL.
    pub(crate) fn begin(&self, url: &Url) -> io::Result<BodyFile> {
        let number = self.0.next_temporary.get();
        self.0.next_temporary.set(number + 1);
        let temporary = number.to_string();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let file = open_file(&self.0.temporary, &temporary, flags)?;
        Ok(BodyFile {
            folder: Rc::clone(&self.0),
            url: url.clone(),
            temporary,
            file,
        })
    }
}

/// A body that is being stored. It is removed if it is dropped before it is committed.
#[derive(Debug)]
pub(crate) struct BodyFile {
    folder: Rc<OpenFolder>,
    url: Url,
    /// The name of the temporary file.
    temporary: String,
    file: File,
}

impl BodyFile {
    pub(crate) fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.file.write_all(piece)
    }

    /// Gives a complete body its name, and says which: relative to the folder.
    pub(crate) fn commit(self, body: StoredBody) -> io::Result<String> {
        let folder = &self.folder;
        let url = self.url.as_str();
        let earlier = folder.index.borrow().find(url);
        let is_new = earlier.is_none();
        let (file, parent) = match earlier {
            Some(earlier) => {
                let parent = folder.parent(&earlier.file)?;
                (earlier.file, parent)
            }
            None => folder.choose(&self.url, body.content_type.as_deref())?,
        };
        let entry = IndexEntry {
            url: url.to_owned(),
            file,
            etag: body.etag.filter(|text| text.len() <= MAX_VALUE),
            last_modified: body.last_modified.filter(|text| text.len() <= MAX_VALUE),
            sha256: body.sha256,
            bytes: body.bytes,
            content_type: body.content_type.filter(|text| text.len() <= MAX_VALUE),
            title: body.title.filter(|text| text.len() <= MAX_TITLE),
        };
        // After a crash between the two, a new name has no file, and a known one has the validators
        // of its last file: in both cases the URL is fetched again.
        if is_new {
            folder.index.borrow_mut().append(&entry)?;
        }
        let last = last_segment(&entry.file);
        rustix::fs::renameat(&folder.temporary, &*self.temporary, &*parent, last)?;
        if !is_new {
            folder.index.borrow_mut().append(&entry)?;
        }
        Ok(entry.file)
    }
}

impl Drop for BodyFile {
    fn drop(&mut self) {
        // After a commit there is none. What cannot be removed now is removed at the next start.
        _ = rustix::fs::unlinkat(&self.folder.temporary, &*self.temporary, AtFlags::empty());
    }
}

impl OpenFolder {
    /// What the index says about a URL whose file is there.
    fn find(&self, url: &str) -> Option<IndexEntry> {
        let entry = self.index.borrow().find(url)?;
        let parent = self.parent(&entry.file).ok()?;
        let last = last_segment(&entry.file);
        let stat = rustix::fs::statat(&*parent, last, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let is_whole = is_file && u64::try_from(stat.st_size) == Ok(entry.bytes);
        is_whole.then_some(entry)
    }

    fn open_stored(&self, entry: &IndexEntry) -> io::Result<File> {
        let parent = self.parent(&entry.file)?;
        open_file(&parent, last_segment(&entry.file), OFlags::RDONLY)
    }

    /// The first name for a URL that neither the index nor the disk has, and its folder.
    fn choose(&self, url: &Url, content_type: Option<&str>) -> io::Result<(String, Rc<OwnedFd>)> {
        for file in name::candidates(url, content_type) {
            if !self.index.borrow().is_free(&file, url.as_str()) {
                continue;
            }
            let parent = match self.parent(&file) {
                Ok(parent) => parent,
                // A file or a symbolic link has the name of the folder.
                Err(error) if is_no_folder(&error) => continue,
                Err(error) => return Err(error),
            };
            match rustix::fs::statat(&*parent, last_segment(&file), AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => return Ok((file, parent)),
                Err(error) => return Err(error.into()),
                Ok(_) => {}
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "all names for it are taken by other files of the folder",
        ))
    }

    /// The folder of a file's name; it is created if need be.
    fn parent(&self, file: &str) -> io::Result<Rc<OwnedFd>> {
        let path = file.rsplit_once('/').map_or("", |(path, _)| path);
        if let Some(folder) = self.open.borrow().get(path) {
            return Ok(Rc::clone(folder));
        }
        let mut folder = None;
        for segment in path.split('/') {
            folder = Some(open_folder(folder.as_ref().unwrap_or(&self.root), segment)?);
        }
        let folder = Rc::new(folder.expect("a split has at least one part"));
        let mut open = self.open.borrow_mut();
        if open.len() >= MAX_OPEN {
            open.clear();
        }
        open.insert(path.to_owned(), Rc::clone(&folder));
        Ok(folder)
    }
}

fn last_segment(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

fn is_no_folder(error: &io::Error) -> bool {
    let error = Errno::from_io_error(error);
    error.is_some_and(|error| [Errno::NOTDIR, Errno::LOOP].contains(&error))
}

/// Opens a folder in a folder, a new one if there is none; never through a symbolic link.
fn open_folder(parent: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(parent, name, flags, Mode::empty());
    match open() {
        Err(Errno::NOENT) => {
            match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            Ok(open()?)
        }
        folder => Ok(folder?),
    }
}

/// Opens a file in a folder; never a symbolic link, a device or a pipe.
fn open_file(parent: &OwnedFd, name: &str, flags: OFlags) -> io::Result<File> {
    // Opening a pipe would wait for its other end.
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o666))?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    match kind {
        FileType::RegularFile => Ok(file.into()),
        _ => Err(io::Error::other(format!("`{name}` is no file"))),
    }
}

const LOCK: &str = ".tidegate-lock";
const TEMPORARY: &str = ".tidegate-tmp";
const INDEX: &str = ".tidegate-index.jsonl";
/// Of a header that is stored; none in use is nearly as long.
const MAX_VALUE: usize = 1024;
const MAX_TITLE: usize = 16 << 10;
/// Folders that are open at once.
const MAX_OPEN: usize = 64;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn store(folder: &Folder, address: &str, body: &str) -> io::Result<String> {
        let mut file = folder.begin(&url(address))?;
        file.write(body.as_bytes())?;
        file.commit(StoredBody {
            content_type: Some("text/html".to_owned()),
            etag: Some(format!("W/\"{}\"", body.len())),
            last_modified: None,
            sha256: body.to_owned(),
            bytes: body.len() as u64,
            title: None,
        })
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    fn temporaries(path: &Path) -> usize {
        fs::read_dir(path.join(TEMPORARY)).unwrap().count()
    }

    #[test]
    fn stores_bodies_and_finds_them_again() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        assert_eq!(folder.validators("http://a.example/"), None);
        let file = store(&folder, "http://a.example/", "one").unwrap();
        assert_eq!(file, "a.example/index.html");
        assert_eq!(read(&root.path().join(&file)), "one");
        drop(folder);
        let folder = Folder::open(root.path()).unwrap();
        let validators = folder.validators("http://a.example/").unwrap();
        assert_eq!(validators.etag.unwrap(), "W/\"3\"");
        assert_eq!(folder.stored("http://a.example/").unwrap().file, file);
        let mut body = String::new();
        let mut stored = folder.open_body("http://a.example/").unwrap();
        io::Read::read_to_string(&mut stored, &mut body).unwrap();
        assert_eq!(body, "one");
        // A new body has the same name.
        assert_eq!(store(&folder, "http://a.example/", "newer").unwrap(), file);
        assert_eq!(read(&root.path().join(&file)), "newer");
        let folder = (drop(folder), Folder::open(root.path()).unwrap()).1;
        assert_eq!(folder.stored("http://a.example/").unwrap().bytes, 5);
    }

    #[test]
    fn a_body_that_is_dropped_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        let mut body = folder.begin(&url("http://a.example/")).unwrap();
        body.write(b"half").unwrap();
        assert_eq!(temporaries(root.path()), 1);
        drop(body);
        assert_eq!(temporaries(root.path()), 0);
        assert!(!root.path().join("a.example").exists());
    }

    #[test]
    fn removes_what_a_crash_left() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        std::mem::forget(folder.begin(&url("http://a.example/")).unwrap());
        store(&folder, "http://a.example/1", "one").unwrap();
        drop(folder);
        // The process has ended, so its lock is gone.
        fs::remove_file(root.path().join(LOCK)).unwrap();
        let index = root.path().join(INDEX);
        let whole = read(&index);
        fs::write(&index, whole.clone() + "{\"url\":\"http://a.exa").unwrap();
        let folder = Folder::open(root.path()).unwrap();
        assert_eq!(temporaries(root.path()), 0);
        assert_eq!(read(&index), whole);
        assert!(folder.stored("http://a.example/1").is_some());
        store(&folder, "http://a.example/2", "two").unwrap();
        assert_eq!(read(&index).lines().count(), 2);
    }

    /// Then the body would be missing for ever.
    #[test]
    fn a_file_that_is_missing_or_cut_has_no_validators() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        let file = store(&folder, "http://a.example/", "whole").unwrap();
        fs::write(root.path().join(&file), "who").unwrap();
        assert_eq!(folder.validators("http://a.example/"), None);
        fs::remove_file(root.path().join(&file)).unwrap();
        assert_eq!(folder.stored("http://a.example/"), None);
        assert!(folder.open_body("http://a.example/").is_err());
        assert_eq!(store(&folder, "http://a.example/", "whole").unwrap(), file);
    }

    #[test]
    fn names_that_collide_get_a_hash() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        let urls = [
            "http://a.example/Page.html",
            "http://a.example/page.html",
            "https://a.example/page.html",
            "http://a.example/x.y/z",
            "http://a.example/x.y",
            "http://a.example/f.txt",
            "http://a.example/f.txt/g",
            "http://a.example/F.TXT/h",
        ];
        let store_all = |folder: &Folder| -> Vec<String> {
            let store = |url: &&str| store(folder, url, url).unwrap();
            urls.iter().map(store).collect()
        };
        let names = store_all(&folder);
        for (url, name) in urls.iter().zip(&names) {
            assert_eq!(read(&root.path().join(name)), *url);
        }
        drop(folder);
        let folder = Folder::open(root.path()).unwrap();
        assert_eq!(store_all(&folder), names);
        insta::assert_snapshot!(names.join("\n"), @"
        a.example/Page.html
        a.example/page~5376dead9daac374.html
        a.example/page~aff46a2d6f2dc11f.html
        a.example/x.y/z.html
        a.example/x~2d3dd68c3ea78f29.y
        a.example/f.txt
        a.example/g~7354b5658482c95b8c5ea7b36fc96b9d.html
        a.example/h~cb5ddd271dc813db6a80441c6170839c.html
        ");
    }

    /// Files of the user are not replaced.
    #[test]
    fn takes_another_name_when_a_file_is_there() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("a.example")).unwrap();
        let mine = root.path().join("a.example/index.html");
        fs::write(&mine, "mine").unwrap();
        let folder = Folder::open(root.path()).unwrap();
        let file = store(&folder, "http://a.example/", "theirs").unwrap();
        assert!(file.starts_with("a.example/index~"), "{file}");
        assert_eq!(read(&mine), "mine");
    }

    #[test]
    fn no_symbolic_link_leads_out_of_the_folder() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let target = outside.path().join("target");
        fs::write(&target, "untouched").unwrap();
        symlink(outside.path(), root.path().join("a.example")).unwrap();
        fs::create_dir(root.path().join("b.example")).unwrap();
        symlink(&target, root.path().join("b.example/index.html")).unwrap();
        symlink(outside.path(), root.path().join("b.example/d")).unwrap();
        let folder = Folder::open(root.path()).unwrap();
        store(&folder, "http://a.example/", "x").unwrap_err();
        store(&folder, "http://b.example/", "x").unwrap();
        store(&folder, "http://b.example/d/new", "x").unwrap();
        // A name of ours that is replaced by a link later.
        let file = store(&folder, "http://b.example/late", "untouched").unwrap();
        fs::remove_file(root.path().join(&file)).unwrap();
        symlink(&target, root.path().join(&file)).unwrap();
        assert_eq!(folder.validators("http://b.example/late"), None);
        assert!(folder.open_body("http://b.example/late").is_err());
        store(&folder, "http://b.example/late", "y").unwrap();
        assert_eq!(read(&target), "untouched");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn its_own_files_may_not_be_symbolic_links() {
        for name in [LOCK, TEMPORARY, INDEX] {
            let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            symlink(outside.path(), root.path().join(name)).unwrap();
            assert!(Folder::open(root.path()).is_err(), "{name}");
        }
    }

    #[test]
    fn names_of_a_planted_index_are_not_trusted() {
        let root = tempfile::tempdir().unwrap();
        let line = |url: &str, file: &str| {
            format!(
                r#"{{"url":"{url}","file":"{file}","etag":"x","last_modified":null,"sha256":"","bytes":0,"content_type":null,"title":null}}"#
            )
        };
        let lines = [
            line("http://a.example/", "../escaped"),
            line("http://b.example/", "/etc/passwd"),
            line("http://c.example/", ".tidegate-lock"),
            line("http://d.example/", "d.example/same"),
            line("http://e.example/", "D.example/SAME"),
            "{}".to_owned(),
            "not JSON".to_owned(),
        ];
        fs::write(root.path().join(INDEX), lines.join("\n") + "\n").unwrap();
        let folder = Folder::open(root.path()).unwrap();
        let stored: Vec<String> = ["a", "b", "c", "d", "e"]
            .iter()
            .map(|host| store(&folder, &format!("http://{host}.example/"), "x").unwrap())
            .collect();
        insta::assert_snapshot!(stored.join("\n"), @"
        a.example/index.html
        b.example/index.html
        c.example/index.html
        d.example/same
        e.example/index.html
        ");
    }

    #[test]
    fn a_folder_is_used_by_one_process() {
        let root = tempfile::tempdir().unwrap();
        let _folder = Folder::open(root.path()).unwrap();
        let error = Folder::open(root.path()).unwrap_err();
        assert!(matches!(error, FolderError::InUse(_)), "{error}");
    }

    #[test]
    fn an_index_of_old_lines_is_written_anew() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        let first = store(&folder, "http://a.example/first", "first").unwrap();
        for number in 0..1010 {
            store(&folder, "http://a.example/", &number.to_string()).unwrap();
        }
        drop(folder);
        let folder = Folder::open(root.path()).unwrap();
        assert_eq!(read(&root.path().join(INDEX)).lines().count(), 2);
        assert_eq!(folder.stored("http://a.example/").unwrap().sha256, "1009");
        assert_eq!(
            store(&folder, "http://a.example/first", "x").unwrap(),
            first
        );
        assert_eq!(read(&root.path().join(INDEX)).lines().count(), 3);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Every name stays below the folder, belongs to one URL, and is the same in later runs.
        #[test]
        fn hostile_urls_have_names_of_their_own(
            paths in proptest::collection::hash_set(
                proptest::collection::vec(hostile_segment(), 0..6).prop_map(|parts| parts.concat()),
                1..40,
            ),
        ) {
            let root = tempfile::tempdir().unwrap();
            let urls: HashSet<Url> = paths
                .iter()
                .filter_map(|path| Url::parse(&format!("http://a.example/{path}")).ok())
                .collect();
            let folder = Folder::open(root.path()).unwrap();
            let mut names = HashMap::new();
            let mut folded = HashSet::new();
            for url in &urls {
                let file = store(&folder, url.as_str(), url.as_str()).unwrap();
                prop_assert!(name::is_safe(&file), "{file}");
                prop_assert!(folded.insert(file.to_lowercase()), "{file}");
                names.insert(url.clone(), file);
            }
            drop(folder);
            let folder = Folder::open(root.path()).unwrap();
            let below = root.path().canonicalize().unwrap();
            for (url, file) in &names {
                let path = root.path().join(file).canonicalize().unwrap();
                prop_assert!(path.starts_with(&below));
                prop_assert_eq!(read(&path), url.as_str());
                prop_assert_eq!(&folder.stored(url.as_str()).unwrap().file, file);
                prop_assert_eq!(&store(&folder, url.as_str(), "again").unwrap(), file);
            }
        }
    }

    /// Few parts, so that URLs collide often.
    fn hostile_segment() -> impl Strategy<Value = String> {
        let parts = [
            "a",
            "A",
            "b.txt",
            "B.TXT",
            "/",
            "//",
            "..",
            "%2e%2e/",
            "%2f",
            "%5c",
            "%00",
            "%0a",
            "CON",
            "nul.txt",
            "com1",
            ".",
            "-",
            "%20",
            "?q=1",
            "?",
            "&",
            "%E2%80%AE",
            "%C5%BF",
            "%C3%9F",
            "%FF",
            "~",
            "index.html",
            "%25",
            ":",
            "*",
        ];
        prop_oneof![
            8 => proptest::sample::select(parts.to_vec()).prop_map(str::to_owned),
            1 => (100_usize..300).prop_map(|length| "l".repeat(length)),
        ]
    }
}
