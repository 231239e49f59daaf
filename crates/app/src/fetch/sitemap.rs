use url::Url;
pub(crate) struct SitemapReader;
pub(crate) enum SitemapEntry {
    Page(Url),
    Sitemap(Url),
}
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub(crate) struct SitemapError;
impl SitemapReader {
    pub(crate) fn new(_: &Url) -> Self {
        Self
    }
    pub(crate) fn write(
        &mut self,
        _: &[u8],
        _: &mut impl FnMut(SitemapEntry),
    ) -> Result<(), SitemapError> {
        Ok(())
    }
    pub(crate) fn finish(self, _: &mut impl FnMut(SitemapEntry)) -> Result<(), SitemapError> {
        Ok(())
    }
}
