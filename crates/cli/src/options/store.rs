//! What can be asked of a store: `threads`, `runs`, `items`, `export`, `import`, `fork`, `verify`, `forget`, `prune`,
//! `backup`, `restore`, `stats` and `rotate`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::Format;
use crate::amount;

/// How many rows are shown at once, unless another number is asked for.
const PAGE: u32 = 50;

/// Which store, whose part of it, and how it is opened.
#[derive(Debug, Args)]
#[command(next_help_heading = "The store")]
pub(crate) struct At {
    // Neither this nor the keys are clap's to read from the environment: its help would print them.
    /// Where the store is: `sqlite://FILE` or `postgres://USER@HOST/DATABASE`; `THROUGHLINE_STORE`
    /// when not given, else as the configuration says, else throughline/throughline.db in your data directory
    #[arg(long, value_name = "URL", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) store: Option<String>,
    /// Whose threads: nothing of one tenant is visible to another
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) tenant: String,
    /// A file with the master key, as 64 hexadecimal digits; `THROUGHLINE_MASTER_KEY` when not given
    #[arg(long, value_name = "FILE")]
    pub(crate) master_key_file: Option<PathBuf>,
    /// A file with an earlier master key; repeat it for more
    #[arg(long, value_name = "FILE")]
    pub(crate) retired_key_file: Vec<PathBuf>,
    /// The configuration that says where the store is, where neither --store nor the environment
    /// does; ./throughline.toml when not given, else the one in your configuration directory
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// How an answer is printed.
#[derive(Debug, Args)]
pub(crate) struct Printing {
    /// How to print it: as text for people, or as json for programs
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) format: Format,
}

/// Which part of a long list.
#[derive(Debug, Args)]
pub(crate) struct Paging {
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = PAGE, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
    /// Go on after this one: the last of the page before
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
    pub(crate) paging: Paging,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline runs\n  \
    throughline runs --thread thread_42 --limit 10\n\n\
    JSON: `runs`, a list of `id`, `thread`, `records`, `events`, `bytes`, `status`, `gone`,\n\
    `created` and `updated`; and `next`, which --after takes, or null.")]
pub(crate) struct Runs {
    /// Only the runs of this thread
    #[arg(long, value_name = "THREAD", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) thread: Option<String>,
    #[command(flatten)]
    pub(crate) paging: Paging,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline items thread_42\n  \
    throughline items thread_42 --after 50 --limit 20\n  \
    throughline items run_7 --format json --redaction policy.json\n\n\
    What is sealed is shown by its size, never by its bytes. Contents are redacted by\n\
    `[redaction]` of throughline.toml, or of the usual secrets where there is none.\n\
    `throughline export --full` writes all of it, exactly.\n\n\
    JSON: `thread`; `records`, a list of `seq`, `kind`, `at`, `size` and `rewound`, with `content`,\n\
    or with `gone` where it was forgotten or has expired; and `next`, which --after takes, or null.\n\
    `content` is null where it is not text.")]
pub(crate) struct Items {
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = PAGE, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
    /// Go on after the record of this number
    #[arg(long, value_name = "SEQ", default_value_t = 0, hide_default_value = true)]
    pub(crate) after: u64,
    // What `export` must be told is the rule here.
    #[arg(long, hide = true, conflicts_with = "no_redaction")]
    pub(crate) redact: bool,
    /// Leave out what this policy says, as JSON: `keys`, `patterns`, `secretPatterns`, …
    #[arg(long, value_name = "FILE", conflicts_with = "no_redaction")]
    pub(crate) redaction: Option<PathBuf>,
    /// Leave out nothing but what is sealed
    #[arg(long)]
    pub(crate) no_redaction: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
    /// The thread, or a run
    #[arg(value_name = "THREAD", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) thread: String,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline export > to-show.jsonl\n  \
    throughline export --thread thread_42 --thread thread_43 --output two.jsonl\n  \
    throughline export --full --output everything.jsonl\n\n\
    A thread comes with its runs. An export is redacted: by `[redaction]` of throughline.toml,\n\
    or of the usual secrets where there is none. `throughline import` takes full exports only.\n\
    `throughline verify FILE` proves both. A file is written whole or not at all.\n\n\
    JSON: `output`, `threads`, `runs`, `records` and `redacted`; it goes to standard error where\n\
    the export goes to standard output.")]
pub(crate) struct Export {
    /// Only this thread; repeat it for more
    #[arg(long, value_name = "THREAD", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) thread: Vec<String>,
    /// Where to write it; `-` for standard output
    #[arg(long, value_name = "FILE", default_value = "-", hide_default_value = true)]
    pub(crate) output: PathBuf,
    /// Write every content exactly, secrets and seals included, so that it can be imported
    #[arg(long, conflicts_with_all = ["redact", "redaction"])]
    pub(crate) full: bool,
    // The default, kept for scripts that pass it.
    #[arg(long, hide = true)]
    pub(crate) redact: bool,
    /// Redact by this policy, as JSON: `keys`, `patterns`, `secretPatterns`, …
    #[arg(long, value_name = "FILE")]
    pub(crate) redaction: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline import everything.jsonl\n  \
    throughline export --full --store sqlite://old.db | throughline import --store sqlite://new.db -\n  \
    throughline import --tenant acme - < threads.jsonl\n\n\
    The whole export is proven before anything is written, and nothing that exists is changed.\n\
    A redacted export is refused: write a full one with `throughline export --full`. A store\n\
    that does not exist yet is created.\n\n\
    JSON: `threads`, a list of ids; `runs`, `records`, `without_content`, `from_store` and\n\
    `from_tenant`.")]
pub(crate) struct Import {
    #[command(flatten)]
    pub(crate) printing: Printing,
    /// The export, or `-` for standard input
    #[arg(value_name = "FILE.jsonl")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline fork thread_42\n  \
    throughline fork thread_42 --at 7 --as another-way\n\n\
    The history is shared and not copied, so a fork costs nothing, and what is forgotten is\n\
    forgotten in both.\n\n\
    JSON: `id`, `forked_from` (`thread`, `at`) and `records`.")]
pub(crate) struct Fork {
    /// The number of the last record that is shared; the thread's last when not given
    #[arg(long = "at", value_name = "SEQ")]
    pub(crate) up_to: Option<u64>,
    /// What the new thread is called; made from the old name when not given
    #[arg(long = "as", value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) printing: Printing,
    /// The thread
    #[arg(value_name = "THREAD", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) thread: String,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline verify\n  \
    throughline verify --write-manifest today.json\n  \
    throughline verify --manifest yesterday.json\n  \
    throughline verify everything.jsonl\n\n\
    Every link, content, signature and index row of the store is proven, for all tenants, as of when\n\
    it began: others may write meanwhile. Nothing is written, so a read-only copy can be proven.\n\
    Leases and times of creation are not covered. Without a master key the signing key is stored\n\
    beside the data: a person who can write to the store can then sign it again. A manifest that was\n\
    kept elsewhere proves that nothing before it was changed, cut off or put back; an export ends in\n\
    one, and serves as well. Of a file, everything is proven that is in it, without any store.\n\n\
    JSON: `verdict` (intact or broken), `broken` (`place`, `problem`) or null, `store` (the key\n\
    that signs), `records`, `without_content`; of a store also `segments`, `manifests`, `tables`\n\
    (those that are proven) and `warnings` (`code`, `text`), which do not change the exit code.\n\n\
    Exit codes:\n  \
    0   intact\n  \
    1   broken: the first thing that is wrong is named\n  \
    2   wrong usage, or a file that cannot be read or written\n  \
    65  the file is no export, or the store no store\n  \
    69  the store cannot be opened")]
pub(crate) struct Verify {
    /// A manifest that was kept elsewhere, or an export
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) manifest: Option<PathBuf>,
    /// Write a signed manifest of the tenant's chains to this file, if the store is intact
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) write_manifest: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) printing: Printing,
    /// An export to prove instead of the store, or `-` for standard input
    #[arg(value_name = "FILE.jsonl")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline forget --thread thread_42\n  \
    throughline forget --thread thread_42 --item msg_7 --yes\n\n\
    What is forgotten cannot be had back. It is destroyed in the store, in every fork that shares\n\
    it, and in the key files of the backups that the store made, so that no copy of a backup opens\n\
    it. A copy of a key file is out of reach. That there was something stays known, so that the rest\n\
    can still be proven.\n\n\
    JSON: `logs`, a list of ids; `records`, `bytes` and `unreached`, a list of key files.\n\n\
    Exit codes:\n  \
    0   destroyed, in the store and in every key file that it knows of\n  \
    1   destroyed, but a key file could not be reached: with it the backup still opens\n  \
    2   wrong usage, or there is no such thread or item\n  \
    69  the store cannot be opened")]
pub(crate) struct Forget {
    /// The thread, with its runs
    #[arg(long, value_name = "THREAD", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) thread: String,
    /// Only this item of it
    #[arg(long, value_name = "ITEM", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) item: Option<String>,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  \
    throughline prune --days 90 --dry-run\n  \
    throughline prune --days 90\n  \
    throughline prune --bytes 2GB\n\n\
    Threads that nobody has written to for so many days expire with their runs, and the oldest\n\
    ones until the rest is small enough. Their content is destroyed as `forget` destroys it.\n\n\
    JSON: `dry_run`, `threads` (a list of `id`, `bytes` and `updated`), `records`, `bytes` and\n\
    `unreached`; with --dry-run `records` is null.\n\n\
    Exit codes: as of `throughline forget`",
    group = clap::ArgGroup::new("retention").args(["days", "bytes"]).required(true).multiple(true)
)]
pub(crate) struct Prune {
    /// Threads expire after so many days without a write
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) days: Option<u32>,
    /// The oldest threads expire until the others have at most so many bytes: 800KB, 2GB
    #[arg(long, value_name = "SIZE", value_parser = amount::bytes)]
    pub(crate) bytes: Option<u64>,
    /// Say what would expire, and destroy nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask, at a terminal
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline backup /srv/backups/monday.db\n  \
    throughline backup /srv/backups/monday.db --keys /srv/backup-keys/monday.keys\n  \
    throughline restore /srv/backups/monday.db --to restored.db\n  \
    throughline backup --register /srv/backup-keys/monday.keys\n  \
    throughline backup --unregister /srv/backup-keys/sunday.keys\n\n\
    Others may read and write meanwhile. The backup opens nothing without its key file, which has\n\
    the keys of all contents. `forget` and `prune` rewrite the key file, so they reach every copy of\n\
    the backup; a copy of the key file is out of their reach.\n\n\
    JSON: `backup`, `keys` and `bytes`; with --register or --unregister `keys` and `unreached`, a list\n\
    of key files.")]
pub(crate) struct Backup {
    /// Write the key file here [default: FILE.keys]
    #[arg(long, value_name = "PATH", conflicts_with_all = ["register", "unregister"])]
    pub(crate) keys: Option<PathBuf>,
    /// Record the new place of a key file that was moved, and make no backup
    #[arg(long, value_name = "KEYS", conflicts_with_all = ["file", "unregister"])]
    pub(crate) register: Option<PathBuf>,
    /// Stop rewriting a key file that was deleted, and make no backup
    #[arg(long, value_name = "KEYS", conflicts_with = "file")]
    pub(crate) unregister: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) printing: Printing,
    /// The new file
    #[arg(value_name = "FILE", required_unless_present_any = ["register", "unregister"])]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline restore monday.db --to restored.db\n  \
    throughline restore monday.db --keys /srv/backup-keys/monday.keys --to restored.db\n  \
    throughline verify --store sqlite://restored.db\n\n\
    The backup and its key file stay as they are. What was forgotten since the backup was made is\n\
    forgotten in the new store too. A backup of a PostgreSQL store is restored to SQLite; `export`\n\
    and `import` bring its threads back.\n\n\
    JSON: `store`, `records`, `gone` and `without_key`.\n\n\
    Exit codes:\n  \
    0   restored\n  \
    1   restored, but contents lack a key that was not forgotten: run any command on the store that\n      \
        made the backup, which completes its key file, and restore again\n  \
    2   wrong usage, a file that cannot be read, or a key file of another backup\n  \
    65  the key file or the backup is damaged\n  \
    69  the master key is missing or another one")]
pub(crate) struct Restore {
    /// Read the key file from here [default: BACKUP.keys]
    #[arg(long, value_name = "PATH")]
    pub(crate) keys: Option<PathBuf>,
    /// Write the new store to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) to: PathBuf,
    /// A file with the master key that the backup was made under; `THROUGHLINE_MASTER_KEY` when not given
    #[arg(long, value_name = "FILE")]
    pub(crate) master_key_file: Option<PathBuf>,
    /// A file with an earlier master key; repeat it for more
    #[arg(long, value_name = "FILE")]
    pub(crate) retired_key_file: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) printing: Printing,
    /// The backup
    #[arg(value_name = "BACKUP")]
    pub(crate) backup: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    throughline stats\n  \
    throughline stats --format json\n\n\
    The numbers are of all tenants.\n\n\
    JSON: `store`, `public_key`, `tenants`, `threads`, `runs`, `records`, `content_bytes`, `blobs`,\n\
    `blob_bytes`, `turns`, `pending`, `segments`, `manifests` and `disk_bytes`.")]
pub(crate) struct Stats {
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    openssl rand -hex 32 > new.key\n  \
    throughline rotate --master-key-file old.key --new-key-file new.key\n  \
    throughline rotate --master-key-file new.key --retired-key-file old.key --new-key-file new.key\n\n\
    A store that has no master key gets one. Others may read and write meanwhile, if they were\n\
    given the new key, and the old one as retired. Where it was interrupted, or somebody wrote\n\
    under the old key meanwhile, it is asked for again as in the last line. Keep the old key until\n\
    it exits with 0 and nobody writes without the new one.\n\n\
    JSON: `rotated`, the number of contents whose key was wrapped anew; `behind`, whether something\n\
    is wrapped under another key still.\n\n\
    Exit codes:\n  \
    0   everything is wrapped under the new key\n  \
    1   something is not, because somebody wrote under another key meanwhile\n  \
    2   wrong usage, or a key that cannot be read\n  \
    65  the store is damaged, or has no master key yet and was given one\n  \
    69  the store cannot be opened, or somebody keeps what was deleted from leaving its files")]
pub(crate) struct Rotate {
    /// A file with the new master key, as 64 hexadecimal digits
    #[arg(long, value_name = "FILE")]
    pub(crate) new_key_file: PathBuf,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) at: At,
}
