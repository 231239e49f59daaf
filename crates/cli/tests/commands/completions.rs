//! `tidegate completions`.

use insta::assert_snapshot;

use crate::support::{output, run};

#[test]
fn completions_prints_a_script_for_every_shell() {
    let mut first_lines = String::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = output(&format!("completions {shell}"), b"");
        assert_eq!(output.status.code(), Some(0), "{shell}");
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(script.contains("policy"), "{shell} completes options");
        let first = script.lines().find(|line| !line.trim().is_empty()).unwrap();
        first_lines.push_str(&format!("{shell}: {first}\n"));
    }
    assert_snapshot!(first_lines, @"
    bash: _tidegate() {
    elvish: use builtin;
    fish: # Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
    powershell: using namespace System.Management.Automation
    zsh: #compdef tidegate
    ");
}

#[test]
fn completions_rejects_an_unknown_shell() {
    assert_snapshot!(run("completions tcsh", ""), @"
    exit 2
    --- stderr
    error: `SHELL` is `tcsh`, expected one of `bash`, `elvish`, `fish`, `powershell`, `zsh`
    hint: did you mean `bash`? `tidegate completions --help` shows all
    ");
}
