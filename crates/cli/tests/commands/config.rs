//! `tidegate config`: the default file and its schema.

use insta::assert_snapshot;

use crate::support::{output, run};

/// The first lines of what is printed.
fn beginning(args: &str) -> String {
    let output = output(args, b"");
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .take(16)
        .map(|line| format!("{line}\n"))
        .collect()
}

#[test]
fn default_file() {
    assert_snapshot!(beginning("config default"), @r#"
    # Settings of Tidegate, with their defaults. `tidegate check` shows the worst cases of a file like this one.
    #
    # Lines that begin with `# ` explain. Lines that begin with `#` alone are examples: remove it to use
    # them. Durations have a unit: "500ms", "30s", "5m", "1h", "1d". Every setting can be given in the
    # environment instead, TIDEGATE_GATE__MAX_RATE for `max_rate` of `[gate]`.

    # Where Tidegate listens and stores its data.
    [server]
    # The data plane, where programs send their requests; anything but loopback needs clients.
    listen = "127.0.0.1:7070"
    # Admin API and console, on a port of their own so that a client's token opens neither.
    admin = "127.0.0.1:7071"
    # Host names accepted besides the listeners' own and loopback; others are answered 421.
    hosts = []
    # Web origins whose pages may use the data plane, such as ["https://app.example.com"]; others get 403.
    origins = []
    "#);
}

#[test]
fn schema() {
    assert_snapshot!(beginning("config schema"), @r#"
    {
      "$schema": "https://json-schema.org/draft/2020-12/schema",
      "additionalProperties": false,
      "properties": {
        "backoff": {
          "additionalProperties": {
            "additionalProperties": false,
            "description": "Backoffs: how often and how soon one request is sent again. Others may be added; what they leave out is as in standard.",
            "properties": {
              "base": {
                "default": "1s",
                "description": "The wait after the first failed send, before jitter.",
                "pattern": "^([0-9]+(\\.[0-9]+)?(ns|us|ms|s|m|h|d) ?)+$",
                "type": "string"
              },
              "growth": {
    "#);
}

#[test]
fn config_schema_is_json() {
    let schema = output("config schema", b"").stdout;
    let schema: serde_json::Value = serde_json::from_slice(&schema).unwrap();
    assert_eq!(
        schema["properties"]["gate"]["properties"]["max_wait"]["default"],
        "30s"
    );
}

#[test]
fn help_of_config() {
    assert_snapshot!(run("config --help", ""), @"
    exit 0
    --- stdout
    Print the default settings, or the schema of a settings file

    Usage: tidegate config [OPTIONS] <COMMAND>

    Commands:
      default  Print the default file: every setting with its default and the reason
               for it
      schema   Print the JSON Schema of a settings file, for editors
      help     Print this message or the help of the given subcommand(s)

    Options:
      -h, --help  Print help

    Global options:
          --json        Print JSON on stdout
      -q, --quiet       Print errors only
      -v, --verbose...  Print more on stderr

    Examples:
      tidegate config default > tidegate.toml
      tidegate config schema > tidegate.schema.json
    ");
}

#[test]
fn config_rejects_an_unknown_document() {
    assert_snapshot!(run("config defaults", ""), @"
    exit 2
    --- stderr
    error: `tidegate config` has no command `defaults`
    hint: did you mean `default`? `tidegate config --help` shows all
    ");
}
