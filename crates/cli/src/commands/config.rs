//! The default settings and their schema.

use super::{Failure, unwritten};
use crate::args::{ConfigArgs, ConfigCommand};
use crate::output::Output;

pub(crate) fn config(args: &ConfigArgs, output: &Output) -> Result<(), Failure> {
    let text = match args.what {
        ConfigCommand::Default => app::settings::DEFAULT_FILE.to_owned(),
        ConfigCommand::Schema => format!("{:#}\n", app::settings::schema()),
    };
    output.print(text.as_bytes()).or_else(unwritten)
}
