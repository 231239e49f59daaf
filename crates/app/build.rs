//! Lists the files of the console, so that the binary holds all of them and a new one needs no
//! entry anywhere.
//!
//! Cargo watches the folder: an added, changed or removed file rebuilds the crate.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=console");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let root = root.join("console");
    let mut names = Vec::new();
    add_names(&root, "", &mut names);
    names.sort();
    let mut list = String::from("[\n");
    for name in names {
        let path = root.join(&name);
        writeln!(list, "    ({name:?}, include_bytes!({path:?})),").expect("strings take text");
    }
    list.push(']');
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("console_files.rs"), list).expect("the folder for output is writable");
}

/// Adds the files of a folder and of those below it, named from the root with `/`.
fn add_names(folder: &Path, prefix: &str, names: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("the console's folder can be read") {
        let entry = entry.expect("the console's folder can be read");
        let name = entry.file_name().into_string().expect("names are UTF-8");
        let path = format!("{prefix}{name}");
        if entry.path().is_dir() {
            if name != "test" && name != "node_modules" {
                add_names(&entry.path(), &format!("{path}/"), names);
            }
        } else if SERVED.iter().any(|ending| name.ends_with(ending)) {
            names.push(path);
        }
    }
}

/// What a browser loads; settings of tools are for development.
const SERVED: [&str; 4] = [".html", ".css", ".js", ".svg"];
