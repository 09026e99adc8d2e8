//! Options of the store commands: `threads`, `runs`, `items`, `export`, `import`, `fork`, `verify`,
//! `forget`, `prune`, `backup`, `restore`, `migrate`, `stats` and `rotate`.

use std::path::PathBuf;

use clap::Args;
use throughline_tools::reader::parse_bytes;

use super::{Format, non_empty, whole_number};

/// Default maximum number of entries or records per page.
const PAGE: u32 = 50;

/// Options that locate and open a store.
#[derive(Debug, Args)]
#[command(next_help_heading = "Store options")]
pub(crate) struct StoreArgs {
    // Clap must not read the URL or the keys from the environment: its help would print them.
    /// Store URL: `sqlite://FILE` or `postgres://USER@HOST/DATABASE` [default: `THROUGHLINE_STORE`,
    /// else the configured store, else throughline/throughline.db in your data directory]
    #[arg(long, value_name = "URL", value_parser = non_empty())]
    pub(crate) store: Option<String>,
    /// Tenant whose data the command uses; tenants cannot see each other's data
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = non_empty())]
    pub(crate) tenant: String,
    /// File with the master key as 64 hexadecimal digits [default: the key in the environment
    /// variable `THROUGHLINE_MASTER_KEY`]
    #[arg(long, value_name = "FILE")]
    pub(crate) master_key_file: Option<PathBuf>,
    /// File with an earlier master key that still encrypts some of the data; repeatable
    #[arg(long, value_name = "FILE")]
    pub(crate) retired_key_file: Vec<PathBuf>,
    /// Configuration file [default: ./throughline.toml, else throughline/throughline.toml in your
    /// configuration directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Options for commands that open a store and print text or JSON.
#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
    /// Output format: text or json
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

/// Options that select one page of a list.
#[derive(Debug, Args)]
pub(crate) struct PageArgs {
    /// Maximum number of entries to list
    #[arg(long, value_name = "N", default_value_t = PAGE, value_parser = whole_number::<u32>(1..=100_000))]
    pub(crate) limit: u32,
    /// Start after the entry with this id, such as the last id of the previous page
    #[arg(long, value_name = "ID", value_parser = non_empty())]
    pub(crate) after: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/threads.md"))]
pub(crate) struct Threads {
    #[command(flatten)]
    pub(crate) paging: PageArgs,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/runs.md"))]
pub(crate) struct Runs {
    /// List only the runs of the Thread with this id
    #[arg(long, value_name = "THREAD", value_parser = non_empty())]
    pub(crate) thread: Option<String>,
    #[command(flatten)]
    pub(crate) paging: PageArgs,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/items.md"))]
pub(crate) struct Items {
    /// Maximum number of records to show
    #[arg(long, value_name = "N", default_value_t = PAGE, value_parser = whole_number::<u32>(1..=100_000))]
    pub(crate) limit: u32,
    /// Start after the record with this number [default: start at the first record]
    #[arg(long, value_name = "SEQ", default_value_t = 0, hide_default_value = true, value_parser = whole_number::<u64>(0..=u64::MAX))]
    pub(crate) after: u64,
    // Redaction is the default here; the flag exists for symmetry with `export`.
    #[arg(long, hide = true, conflicts_with = "no_redaction")]
    pub(crate) redact: bool,
    /// JSON file with the redaction policy; overrides `[redaction]` in throughline.toml
    #[arg(long, value_name = "FILE", conflicts_with = "no_redaction")]
    pub(crate) redaction: Option<PathBuf>,
    /// Disable redaction; Seals are still hidden
    #[arg(long)]
    pub(crate) no_redaction: bool,
    /// Id of the Thread or run to show
    #[arg(value_name = "THREAD", value_parser = non_empty())]
    pub(crate) thread: String,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/export.md"))]
pub(crate) struct Export {
    /// Export only the Thread with this id; repeatable [default: all Threads]
    #[arg(long, value_name = "THREAD", value_parser = non_empty())]
    pub(crate) thread: Vec<String>,
    /// Output file, or `-` for standard output [default: -]
    #[arg(long, value_name = "FILE", default_value = "-", hide_default_value = true)]
    pub(crate) output: PathBuf,
    /// Export the exact contents, including secrets and Seals; `throughline import` requires a full
    /// export
    #[arg(long, conflicts_with_all = ["redact", "redaction"])]
    pub(crate) full: bool,
    // The default; kept for scripts that pass the flag.
    #[arg(long, hide = true)]
    pub(crate) redact: bool,
    /// JSON file with the redaction policy; overrides `[redaction]` in throughline.toml
    #[arg(long, value_name = "FILE")]
    pub(crate) redaction: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/import.md"))]
pub(crate) struct Import {
    /// Export file to import, or `-` for standard input
    #[arg(value_name = "FILE.jsonl")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/fork.md"))]
pub(crate) struct Fork {
    /// Number of the last record to share [default: the last record of the Thread]
    #[arg(long = "at", value_name = "SEQ", value_parser = whole_number::<u64>(0..=u64::MAX))]
    pub(crate) up_to: Option<u64>,
    /// Id of the new Thread [default: THREAD-fork-N]
    #[arg(long = "as", value_name = "ID", value_parser = non_empty())]
    pub(crate) name: Option<String>,
    /// Id of the Thread to fork
    #[arg(value_name = "THREAD", value_parser = non_empty())]
    pub(crate) thread: String,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/verify.md"))]
pub(crate) struct Verify {
    /// Compare the store with this earlier manifest or export
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) manifest: Option<PathBuf>,
    /// If the store is intact, write a signed manifest of the tenant's chains to this file
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) write_manifest: Option<PathBuf>,
    /// Export file to verify instead of a store, or `-` for standard input
    #[arg(value_name = "FILE.jsonl")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/forget.md"))]
pub(crate) struct Forget {
    /// Id of the Thread to erase; its runs are also erased
    #[arg(long, value_name = "THREAD", value_parser = non_empty())]
    pub(crate) thread: String,
    /// Erase only the Item with this id, not the whole Thread
    #[arg(long, value_name = "ITEM", value_parser = non_empty())]
    pub(crate) item: Option<String>,
    /// Skip the confirmation prompt; required if standard input is not a terminal
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = include_str!("help/prune.md"),
    group = clap::ArgGroup::new("retention").args(["days", "bytes"]).required(true).multiple(true)
)]
pub(crate) struct Prune {
    /// Erase Threads that have not been updated for this many days
    #[arg(long, value_name = "N", value_parser = whole_number::<u32>(1..=100_000))]
    pub(crate) days: Option<u32>,
    /// Erase the oldest Threads until the other Threads fit into this size, such as 800KB or 2GB
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) bytes: Option<u64>,
    /// List the Threads that would be erased, but erase nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Skip the confirmation prompt; required if standard input is not a terminal
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/backup.md"))]
pub(crate) struct Backup {
    /// Path of the key file [default: FILE.keys]
    #[arg(long, value_name = "PATH", conflicts_with_all = ["register", "unregister"])]
    pub(crate) keys: Option<PathBuf>,
    /// Record the new path of a key file that was moved, instead of making a backup
    #[arg(long, value_name = "KEYS", conflicts_with_all = ["file", "unregister"])]
    pub(crate) register: Option<PathBuf>,
    /// Remove a deleted key file from the store's list of key files, instead of making a backup
    #[arg(long, value_name = "KEYS", conflicts_with = "file")]
    pub(crate) unregister: Option<PathBuf>,
    /// Backup file to create
    #[arg(value_name = "FILE", required_unless_present_any = ["register", "unregister"])]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/restore.md"))]
pub(crate) struct Restore {
    /// Path of the key file [default: BACKUP.keys]
    #[arg(long, value_name = "PATH")]
    pub(crate) keys: Option<PathBuf>,
    /// SQLite file to create for the restored store
    #[arg(long, value_name = "FILE")]
    pub(crate) to: PathBuf,
    /// File with the master key of the backup [default: the key in the environment variable
    /// `THROUGHLINE_MASTER_KEY`]
    #[arg(long, value_name = "FILE")]
    pub(crate) master_key_file: Option<PathBuf>,
    /// File with an earlier master key that still encrypts some of the data; repeatable
    #[arg(long, value_name = "FILE")]
    pub(crate) retired_key_file: Vec<PathBuf>,
    /// Output format: text or json
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) format: Format,
    /// Backup file to restore
    #[arg(value_name = "BACKUP")]
    pub(crate) backup: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/migrate.md"))]
pub(crate) struct Migrate {
    /// File with the master key of the source, which becomes the master key of the target
    /// [default: the key in the environment variable `THROUGHLINE_MASTER_KEY`]
    #[arg(long, value_name = "FILE")]
    pub(crate) master_key_file: Option<PathBuf>,
    /// File with an earlier master key that still encrypts some of the data; repeatable
    #[arg(long, value_name = "FILE")]
    pub(crate) retired_key_file: Vec<PathBuf>,
    /// Output format: text or json
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) format: Format,
    /// Store to copy: `sqlite://FILE` or `postgres://USER@HOST/DATABASE`
    #[arg(value_name = "SOURCE-URL", value_parser = non_empty())]
    pub(crate) source: String,
    /// New SQLite file or empty PostgreSQL database to copy the store to
    #[arg(value_name = "TARGET-URL", value_parser = non_empty())]
    pub(crate) target: String,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/rotate.md"))]
pub(crate) struct Rotate {
    /// File with the new master key, as 64 hexadecimal digits
    #[arg(long, value_name = "FILE")]
    pub(crate) new_key_file: PathBuf,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}
