use super::trackers::ResourceKind;
use url::Url;
pub(crate) struct PageReader;
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub title: Option<String>,
    pub links: Vec<Url>,
    pub resources: Vec<Resource>,
    pub is_truncated: bool,
}
#[derive(Debug)]
pub(crate) struct Resource {
    pub url: Url,
    pub kind: ResourceKind,
}
impl PageReader {
    pub(crate) fn new(_: &Url, _: Option<&str>) -> Option<Self> {
        Some(Self)
    }
    pub(crate) fn write(&mut self, _: &[u8]) {}
    pub(crate) fn finish(self) -> Page {
        Page::default()
    }
}
