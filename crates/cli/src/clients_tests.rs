//! Checks of the embedded client list.

use std::collections::BTreeSet;

use throughline_testkit::workspace_root;

use super::{FileFormat, clients};

/// Placeholders that `connect` fills in.
const PLACEHOLDERS: [&str; 4] = ["{url}", "{model}", "{small}", "{key}"];

/// Clients that the book promises a page of their own.
const OWN_PAGES: [&str; 7] =
    ["claude-code", "codex", "gemini-cli", "opencode", "ai-sdk", "langchain", "openai-agents"];

#[test]
fn every_client_has_a_page_that_names_it() {
    let docs = workspace_root().join("docs");
    let summary = std::fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let overview = std::fs::read_to_string(docs.join("clients.md")).unwrap();
    for client in clients().unwrap() {
        let page = std::fs::read_to_string(docs.join(&client.page)).unwrap_or_else(|error| {
            panic!("{}: docs/{}: {error}; write the page", client.name, client.page)
        });
        let command = format!("throughline connect {}", client.name);
        for (place, text) in [(client.page.as_str(), &page), ("clients.md", &overview)] {
            assert!(text.contains(&command), "docs/{place} does not show `{command}`");
        }
        assert!(page.contains(&client.install), "docs/{} lacks `{}`", client.page, client.install);
        let link = format!("]({})", client.page);
        assert!(summary.contains(&link), "docs/SUMMARY.md does not list {}", client.page);
        assert!(overview.contains(&link), "docs/clients.md does not link {}", client.page);
    }
}

#[test]
fn main_clients_have_their_own_pages() {
    let clients = clients().unwrap();
    for name in OWN_PAGES {
        let client = clients.iter().find(|client| client.name == name);
        let page = client.map(|client| client.page.clone());
        assert_eq!(page, Some(format!("clients/{name}.md")));
        let Some(snippet) = client.and_then(|client| client.snippet.as_ref()) else { continue };
        let model = client.map(|client| format!("sim/{}", client.model)).unwrap();
        let program = snippet.text.replace("{url}", "http://127.0.0.1:4400");
        let program = program.replace("{model}", &model).replace("{key}", "\"any\"");
        let page = workspace_root().join(format!("docs/clients/{name}.md"));
        let page = std::fs::read_to_string(page).unwrap();
        assert!(page.contains(&program), "{name}: the page shows another program than\n{program}");
    }
}

#[test]
fn client_entries_are_complete() {
    let clients = clients().unwrap();
    let names: BTreeSet<&str> = clients.iter().map(|client| client.name.as_str()).collect();
    assert_eq!(names.len(), clients.len(), "a name occurs twice");
    assert_eq!(clients.iter().filter(|client| client.welcome).count(), 3);
    for client in &clients {
        let name = &client.name;
        assert!(client.docs.starts_with("https://"), "{name}");
        assert!(
            !client.environment.is_empty() || !client.files.is_empty() || client.snippet.is_some(),
            "{name} cannot be connected"
        );
        let mut texts: Vec<String> =
            client.environment.iter().map(|(_, value)| value.clone()).collect();
        texts.extend(client.snippet.iter().map(|snippet| snippet.text.clone()));
        for file in &client.files {
            assert!(!file.names.is_empty(), "{name}");
            assert!(file.environment.is_some() || !file.set.is_empty(), "{name}");
            for setting in &file.set {
                assert!(!setting.at.is_empty(), "{name}");
                assert!(file.format != FileFormat::Env || setting.at.len() == 1, "{name}");
                // Only TOML settings can be removed when the kind of key changes.
                let kinds = file.set.iter().filter(|other| other.at == setting.at).count();
                let has_all_kinds = setting.when.is_none() || kinds == 3;
                assert!(file.format == FileFormat::Toml || has_all_kinds, "{name}");
                texts.extend(setting.at.iter().cloned());
                texts.push(setting.value.to_string());
            }
        }
        let all = texts.concat();
        assert!(all.contains("{url}") && all.contains("{model}"), "{name}");
        for word in all.split('{').skip(1).filter_map(|rest| rest.split_once('}')) {
            let placeholder = format!("{{{}}}", word.0);
            let is_word = word.0.chars().all(|letter| letter.is_ascii_lowercase());
            assert!(
                !is_word || word.0.is_empty() || PLACEHOLDERS.contains(&placeholder.as_str()),
                "{name}: unknown placeholder {placeholder}"
            );
        }
    }
}
