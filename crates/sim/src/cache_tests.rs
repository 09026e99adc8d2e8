//! Tests for the simulated prompt cache.

use throughline_json::Tree;

use super::*;

fn elements(texts: &[&'static str]) -> Vec<PromptElement> {
    texts.iter().map(|text| PromptElement::new(Tree::parse(*text).unwrap().root())).collect()
}

#[test]
fn cache_reads_up_to_the_first_difference() {
    let cache = PromptCache::default();
    let owner = Digest::new("owner", "one");
    let one = elements(&[r#"{"a":"0123456789"}"#, r#"{"b":"0123456789"}"#]);
    let first = cache.read_and_write(owner, &one);
    assert_eq!((first.cached, first.uncached_input()), (0, UNCACHED_TAIL_TOKENS));
    assert_eq!(first.input, PromptCache::count(&one));
    let again = cache.read_and_write(owner, &one);
    assert_eq!((again.cached, again.written), (again.input, 0));
    let longer = [one.clone(), elements(&[r#"{"c":"0123456789"}"#])].concat();
    assert_eq!(cache.read_and_write(owner, &longer).cached, first.input);
    let swapped = [longer[1].clone(), longer[0].clone()];
    assert_eq!(cache.read_and_write(owner, &swapped).cached, 0);
    assert_eq!(cache.read_and_write(Digest::new("owner", "two"), &one).cached, 0);
}

#[test]
fn only_reordered_content_counts_as_missed() {
    let cache = PromptCache::default();
    let owner = Digest::new("owner", "one");
    let one = elements(&[r#"{"a":1,"b":"0123456789"}"#, r#"{"c":"0123456789"}"#]);
    cache.read_and_write(owner, &one);
    assert_eq!(cache.missed(owner, &one), 0);
    let turned = elements(&[r#"{"b":"0123456789","a":1}"#, r#"{"c":"0123456789"}"#]);
    assert_eq!(cache.missed(owner, &turned), PromptCache::count(&turned));
    let other = elements(&[r#"{"a":2,"b":"0123456789"}"#, r#"{"c":"0123456789"}"#]);
    assert_eq!(cache.missed(owner, &other), 0);
    let set = [vec![PromptElement::from_setting("another")], one].concat();
    assert_eq!(cache.missed(owner, &set), 0);
    assert_eq!(cache.missed(Digest::new("owner", "two"), &turned), 0);
}
