//! Folders that cannot be used.

use std::process::Stdio;

use crate::support::Home;

#[test]
fn refuses_a_second_server_on_one_folder() {
    let home = Home::new("");
    let first = home.start();
    let output = home.command().stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let expected = format!("is used by another tidegate (process {})", first.pid());
    assert!(said.contains(&expected), "{said}");
    assert!(
        said.contains("hint: stop that one, or give this one another folder"),
        "{said}"
    );
    assert_eq!(said.matches("\nhint:").count(), 1, "{said}");

    // The folder is free as soon as its server has ended, however that happened.
    first.kill();
    assert!(home.start().stop().success());
}
