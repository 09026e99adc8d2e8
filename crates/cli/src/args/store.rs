//! Options of the store commands: `threads`, `runs`, `items`, `export`, `import`, `fork`, `verify`,
//! `forget`, `prune`, `backup`, `restore`, `stats` and `rotate`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use throughline_tools::reader::parse_bytes;

use super::Format;

/// Default number of rows per page.
const PAGE: u32 = 50;

/// Options that locate and open a store.
#[derive(Debug, Args)]
#[command(next_help_heading = "The store")]
pub(crate) struct StoreArgs {
    // Clap must not read the URL or the keys from the environment: its help would print them.
    /// Store URL: `sqlite://FILE` or `postgres://USER@HOST/DATABASE`; defaults to
    /// `THROUGHLINE_STORE`, then to the configuration, then to throughline/throughline.db in your
    /// data directory
    #[arg(long, value_name = "URL", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) store: Option<String>,
    /// Tenant whose data is used; tenants cannot see each other's data
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = NonEmptyStringValueParser::new())]
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

/// Output options.
#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// Output format: text or json
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) format: Format,
}

/// Options that select one page of a list.
#[derive(Debug, Args)]
pub(crate) struct PageArgs {
    /// Maximum number of rows
    #[arg(long, value_name = "N", default_value_t = PAGE, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
    /// Continue after this id, the last one of the previous page
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) after: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline threads\n  \
    throughline threads --limit 10 --after thread_42\n  \
    throughline threads --store sqlite:///srv/agents.db --tenant acme --format json\n\n\
    JSON: `threads`, a list of `id`, `records`, `runs`, `bytes`, `status`, `forked_from`\n\
    (`thread`, `at`), `gone`, `created` and `updated`; and `next`, which --after takes, or null.")]
pub(crate) struct Threads {
    #[command(flatten)]
    pub(crate) paging: PageArgs,
    #[command(flatten)]
    pub(crate) printing: OutputArgs,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline runs\n  \
    throughline runs --thread thread_42 --limit 10\n\n\
    JSON: `runs`, a list of `id`, `thread`, `records`, `events`, `bytes`, `status`, `gone`,\n\
    `created` and `updated`; and `next`, which --after takes, or null.")]
pub(crate) struct Runs {
    /// List only the runs of this thread
    #[arg(long, value_name = "THREAD", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) thread: Option<String>,
    #[command(flatten)]
    pub(crate) paging: PageArgs,
    #[command(flatten)]
    pub(crate) printing: OutputArgs,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline items thread_42\n  \
    throughline items thread_42 --after 50 --limit 20\n  \
    throughline items run_7 --format json --redaction policy.json\n\n\
    Sealed values are shown by size; their bytes are never printed. Contents are redacted with\n\
    `[redaction]` of throughline.toml, or for common secrets if there is no such section.\n\
    `throughline export --full` writes exact contents.\n\n\
    JSON: `thread`; `records`, a list of `seq`, `kind`, `at`, `size` and `rewound`, with `content`,\n\
    or with `gone` if it was forgotten or has expired; and `next`, which --after takes, or null.\n\
    `content` is null if it is not text.")]
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
    #[command(flatten)]
    pub(crate) printing: OutputArgs,
    /// Thread or run to show
    #[arg(value_name = "THREAD", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) thread: String,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline export > redacted.jsonl\n  \
    throughline export --thread thread_42 --thread thread_43 --output two.jsonl\n  \
    throughline export --full --output everything.jsonl\n\n\
    Each thread is exported with its runs. Exports are redacted with `[redaction]` of\n\
    throughline.toml, or for common secrets if there is no such section. `throughline import`\n\
    accepts full exports only; `throughline verify FILE` verifies both kinds. An output file is\n\
    written atomically.\n\n\
    JSON: `output`, `threads`, `runs`, `records` and `redacted`; written to standard error if the\n\
    export goes to standard output.")]
pub(crate) struct Export {
    /// Export only this thread; repeatable
    #[arg(long, value_name = "THREAD", value_parser = NonEmptyStringValueParser::new())]
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
    pub(crate) printing: OutputArgs,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline import everything.jsonl\n  \
    throughline export --full --store sqlite://old.db | throughline import --store sqlite://new.db -\n  \
    throughline import --tenant acme - < threads.jsonl\n\n\
    The whole export is verified before anything is written, and existing data is not changed.\n\
    A redacted export is refused: write a full one with `throughline export --full`. A missing\n\
    store is created.\n\n\
    JSON: `threads`, a list of ids; `runs`, `records`, `without_content`, `from_store` and\n\
    `from_tenant`.")]
pub(crate) struct Import {
    #[command(flatten)]
    pub(crate) printing: OutputArgs,
    /// Export to read, or `-` for standard input
    #[arg(value_name = "FILE.jsonl")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline fork thread_42\n  \
    throughline fork thread_42 --at 7 --as another-way\n\n\
    The history is shared, not copied, so a fork uses no extra space. Forgetting a shared record\n\
    erases it from both threads.\n\n\
    JSON: `id`, `forked_from` (`thread`, `at`) and `records`.")]
pub(crate) struct Fork {
    /// Number of the last shared record; defaults to the last record of the thread
    #[arg(long = "at", value_name = "SEQ")]
    pub(crate) up_to: Option<u64>,
    /// Id of the new thread; derived from the old id when omitted
    #[arg(long = "as", value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) printing: OutputArgs,
    /// Thread to fork
    #[arg(value_name = "THREAD", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) thread: String,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline verify\n  \
    throughline verify --write-manifest today.json\n  \
    throughline verify --manifest yesterday.json\n  \
    throughline verify everything.jsonl\n\n\
    Verifies every link, content, signature and index row of the store, for all tenants, as of the\n\
    start of the command. Other processes may write meanwhile. Nothing is written, so a read-only\n\
    copy can be verified. Leases and creation times are not covered. Without a master key the\n\
    signing key is stored next to the data, so anyone with write access can sign the store again.\n\
    A manifest that was kept elsewhere proves that no earlier record was changed, removed or\n\
    reverted; the last line of an export is a manifest too. A file is verified without a store.\n\n\
    JSON: `verdict` (intact or broken), `broken` (`place`, `problem`) or null, `store` (the signing\n\
    key), `records`, `without_content`; for a store also `segments`, `manifests`, `tables` (the\n\
    verified ones) and `warnings` (`code`, `text`), which do not change the exit code.\n\n\
    Exit codes:\n  \
    0   intact\n  \
    1   broken; the first problem is reported\n  \
    2   usage error, or a file cannot be read or written\n  \
    65  the file is not an export, or the store is not a Throughline store\n  \
    69  the store cannot be opened")]
pub(crate) struct Verify {
    /// Manifest that was kept elsewhere, or an export
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) manifest: Option<PathBuf>,
    /// Write a signed manifest of the tenant's chains to this file if the store is intact
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) write_manifest: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) printing: OutputArgs,
    /// Export to verify instead of the store, or `-` for standard input
    #[arg(value_name = "FILE.jsonl")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline forget --thread thread_42\n  \
    throughline forget --thread thread_42 --item msg_7 --yes\n\n\
    Forgotten content cannot be recovered. It is erased from the store, from every fork that shares\n\
    it, and from the key files of the store's backups, so copies of a backup cannot be decrypted\n\
    either. A copied key file is out of reach. The record itself stays, so that the rest can still\n\
    be verified.\n\n\
    JSON: `logs`, a list of ids; `records`, `bytes` and `unreached`, a list of key files.\n\n\
    Exit codes:\n  \
    0   erased from the store and from every registered key file\n  \
    1   erased, but a key file was unreachable; its backup can still be decrypted\n  \
    2   usage error, or the thread or item does not exist\n  \
    69  the store cannot be opened")]
pub(crate) struct Forget {
    /// Thread to forget, with its runs
    #[arg(long, value_name = "THREAD", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) thread: String,
    /// Forget only this item of the thread
    #[arg(long, value_name = "ITEM", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) item: Option<String>,
    /// Skip the confirmation prompt
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) printing: OutputArgs,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  \
    throughline prune --days 90 --dry-run\n  \
    throughline prune --days 90\n  \
    throughline prune --bytes 2GB\n\n\
    Threads without a write for the given number of days expire with their runs. With --bytes, the\n\
    oldest threads expire until the rest fits. Content is erased as by `forget`.\n\n\
    JSON: `dry_run`, `threads` (a list of `id`, `bytes` and `updated`), `records`, `bytes` and\n\
    `unreached`; with --dry-run `records` is null.\n\n\
    Exit codes: as for `throughline forget`",
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
    pub(crate) printing: OutputArgs,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline backup /srv/backups/monday.db\n  \
    throughline backup /srv/backups/monday.db --keys /srv/backup-keys/monday.keys\n  \
    throughline restore /srv/backups/monday.db --to restored.db\n  \
    throughline backup --register /srv/backup-keys/monday.keys\n  \
    throughline backup --unregister /srv/backup-keys/sunday.keys\n\n\
    Other processes may read and write meanwhile. The backup can be read only with its key file,\n\
    which contains the keys of all contents. `forget` and `prune` rewrite the key file, so they\n\
    reach every copy of the backup; a copied key file is out of reach.\n\n\
    JSON: `backup`, `keys` and `bytes`; with --register or --unregister `keys` and `unreached`, a list\n\
    of key files.")]
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
    #[command(flatten)]
    pub(crate) printing: OutputArgs,
    /// Backup file to create
    #[arg(value_name = "FILE", required_unless_present_any = ["register", "unregister"])]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline restore monday.db --to restored.db\n  \
    throughline restore monday.db --keys /srv/backup-keys/monday.keys --to restored.db\n  \
    throughline verify --store sqlite://restored.db\n\n\
    The backup and its key file are not changed. Content forgotten since the backup was made is\n\
    missing from the new store too. A backup of a PostgreSQL store is restored to SQLite; use\n\
    `export` and `import` to move its threads back.\n\n\
    JSON: `store`, `records`, `gone` and `without_key`.\n\n\
    Exit codes:\n  \
    0   restored\n  \
    1   restored, but some contents lack a key that was not forgotten: run any command on the\n      \
      original store, which completes the key file, and restore again\n  \
    2   usage error, an unreadable file, or the key file of another backup\n  \
    65  the key file or the backup is damaged\n  \
    69  the master key is missing or wrong")]
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
    #[command(flatten)]
    pub(crate) printing: OutputArgs,
    /// Backup to restore
    #[arg(value_name = "BACKUP")]
    pub(crate) backup: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline stats\n  \
    throughline stats --format json\n\n\
    The numbers cover all tenants.\n\n\
    JSON: `store`, `public_key`, `tenants`, `threads`, `runs`, `records`, `content_bytes`, `blobs`,\n\
    `blob_bytes`, `turns`, `pending`, `segments`, `manifests` and `disk_bytes`.")]
pub(crate) struct Stats {
    #[command(flatten)]
    pub(crate) printing: OutputArgs,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    openssl rand -hex 32 > new.key\n  \
    throughline rotate --master-key-file old.key --new-key-file new.key\n  \
    throughline rotate --master-key-file new.key --retired-key-file old.key --new-key-file new.key\n\n\
    A store without a master key gets one. Other processes may read and write meanwhile if they\n\
    have the new key, and the old one as a retired key. If the rotation was interrupted, or another\n\
    process wrote under the old key meanwhile, repeat it as in the last example. Keep the old key\n\
    until the command exits with 0 and every writer uses the new key.\n\n\
    JSON: `rotated`, the number of contents whose key was rewrapped; `behind`, whether any content\n\
    is still wrapped under another key.\n\n\
    Exit codes:\n  \
    0   all contents are wrapped under the new key\n  \
    1   some contents are not, because another process wrote under the old key meanwhile\n  \
    2   usage error, or a key cannot be read\n  \
    65  the store is damaged, or a master key was given for a store that has none\n  \
    69  the store cannot be opened, or another process prevents purging deleted pages")]
pub(crate) struct Rotate {
    /// File with the new master key, as 64 hexadecimal digits
    #[arg(long, value_name = "FILE")]
    pub(crate) new_key_file: PathBuf,
    #[command(flatten)]
    pub(crate) printing: OutputArgs,
    #[command(flatten)]
    pub(crate) at: StoreArgs,
}
