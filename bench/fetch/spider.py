"""Fetches the URLs of a file with Scrapy and drops the responses."""

import scrapy


class ListSpider(scrapy.Spider):
    name = "list"

    async def start(self):
        with open(self.list) as file:
            for line in file:
                yield scrapy.Request(line.strip(), dont_filter=True)

    def parse(self, response):
        pass
