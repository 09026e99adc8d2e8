//! Options of the store commands: `threads`, `runs`, `items`, `export`, `import`, `fork`, `verify`,
//! `forget`, `prune`, `backup`, `restore`, `stats` and `rotate`.

use std::path::PathBuf;

use clap::Args;
use throughline_tools::reader::parse_bytes;

use super::{Format, non_empty};

/// Default number of rows per page.
const PAGE: u32 = 50;

/// Options that locate and open a store.
#[derive(Debug, Args)]
#[command(next_help_heading = "Store options")]
pub(crate) struct StoreArgs {
    // Clap must not read the URL or the keys from the environment: its help would print them.
    /// Store URL: `sqlite://FILE` or `postgres://USER@HOST/DATABASE`; defaults to
    /// `THROUGHLINE_STORE`, then to the configuration, then to throughline/throughline.db in your
    /// data directory
    #[arg(long, value_name = "URL", value_parser = non_empty())]
    pub(crate) store: Option<String>,
    /// Tenant whose data is used; tenants cannot see each other's data
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = non_empty())]
    pub(crate) tenant: String,
    /// File with the master key as 64 hexadecimal digits; defaults to `THROUGHLINE_MASTER_KEY`
    #[arg(long, value_name = "FILE")]
    pub(crate) master_key_file: Option<PathBuf>,
    /// File with an earlier master key; repeatable
    #[arg(long, value_name = "FILE")]
    pub(crate) retired_key_file: Vec<PathBuf>,
    /// Configuration file that names the store if neither --store nor the environment does;
    /// defaults to ./throughline.toml, else to the one in your configuration directory
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Options of a command that opens a store and prints text or JSON.
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
    /// Maximum number of rows
    #[arg(long, value_name = "N", default_value_t = PAGE, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
    /// Continue after this id, the last one of the previous page
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
    /// List only the runs of this thread
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
    /// Maximum number of records
    #[arg(long, value_name = "N", default_value_t = PAGE, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
    /// Continue after this record number
    #[arg(long, value_name = "SEQ", default_value_t = 0, hide_default_value = true)]
    pub(crate) after: u64,
    // Redaction is the default here; the flag exists for symmetry with `export`.
    #[arg(long, hide = true, conflicts_with = "no_redaction")]
    pub(crate) redact: bool,
    /// Redaction policy as JSON: `keys`, `patterns`, `secretPatterns`, …
    #[arg(long, value_name = "FILE", conflicts_with = "no_redaction")]
    pub(crate) redaction: Option<PathBuf>,
    /// Redact nothing except seals
    #[arg(long)]
    pub(crate) no_redaction: bool,
    /// Thread or run to show
    #[arg(value_name = "THREAD", value_parser = non_empty())]
    pub(crate) thread: String,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/export.md"))]
pub(crate) struct Export {
    /// Export only this thread; repeatable
    #[arg(long, value_name = "THREAD", value_parser = non_empty())]
    pub(crate) thread: Vec<String>,
    /// Output file; `-` for standard output
    #[arg(long, value_name = "FILE", default_value = "-", hide_default_value = true)]
    pub(crate) output: PathBuf,
    /// Write exact contents, including secrets and seals, so that the export can be imported
    #[arg(long, conflicts_with_all = ["redact", "redaction"])]
    pub(crate) full: bool,
    // The default; kept for scripts that pass the flag.
    #[arg(long, hide = true)]
    pub(crate) redact: bool,
    /// Redaction policy as JSON: `keys`, `patterns`, `secretPatterns`, …
    #[arg(long, value_name = "FILE")]
    pub(crate) redaction: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/import.md"))]
pub(crate) struct Import {
    /// Export to read, or `-` for standard input
    #[arg(value_name = "FILE.jsonl")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/fork.md"))]
pub(crate) struct Fork {
    /// Number of the last shared record; defaults to the last record of the thread
    #[arg(long = "at", value_name = "SEQ")]
    pub(crate) up_to: Option<u64>,
    /// Id of the new thread; derived from the old id when omitted
    #[arg(long = "as", value_name = "ID", value_parser = non_empty())]
    pub(crate) name: Option<String>,
    /// Thread to fork
    #[arg(value_name = "THREAD", value_parser = non_empty())]
    pub(crate) thread: String,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/verify.md"))]
pub(crate) struct Verify {
    /// Manifest that was kept elsewhere, or an export
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) manifest: Option<PathBuf>,
    /// Write a signed manifest of the tenant's chains to this file if the store is intact
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) write_manifest: Option<PathBuf>,
    /// Export to verify instead of the store, or `-` for standard input
    #[arg(value_name = "FILE.jsonl")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
#[command(after_help = include_str!("help/forget.md"))]
pub(crate) struct Forget {
    /// Thread to forget, with its runs
    #[arg(long, value_name = "THREAD", value_parser = non_empty())]
    pub(crate) thread: String,
    /// Forget only this item of the thread
    #[arg(long, value_name = "ITEM", value_parser = non_empty())]
    pub(crate) item: Option<String>,
    /// Skip the confirmation prompt
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
    /// Expire threads after this many days without a write
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) days: Option<u32>,
    /// Expire the oldest threads until the rest uses at most this many bytes, such as 800KB or 2GB
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) bytes: Option<u64>,
    /// List the threads that would expire, and erase nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Skip the confirmation prompt
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
    /// Record the new path of a moved key file; makes no backup
    #[arg(long, value_name = "KEYS", conflicts_with_all = ["file", "unregister"])]
    pub(crate) register: Option<PathBuf>,
    /// Stop rewriting a deleted key file; makes no backup
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
    /// File to write the new store to
    #[arg(long, value_name = "FILE")]
    pub(crate) to: PathBuf,
    /// File with the master key of the backup; defaults to `THROUGHLINE_MASTER_KEY`
    #[arg(long, value_name = "FILE")]
    pub(crate) master_key_file: Option<PathBuf>,
    /// File with an earlier master key; repeatable
    #[arg(long, value_name = "FILE")]
    pub(crate) retired_key_file: Vec<PathBuf>,
    /// Output format: text or json
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) format: Format,
    /// Backup to restore
    #[arg(value_name = "BACKUP")]
    pub(crate) backup: PathBuf,
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
