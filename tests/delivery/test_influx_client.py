"""influxdb-client over our HTTP transport: its request headers and its query API."""

import gzip

import pytest
from costprobe.adapters.http.errors import Misconfigured
from costprobe.core.clock import SystemClock
from costprobe.delivery.influx import InfluxClient
from fakes.sending import config_of
from fakes.servers import Scripted

CSV = (
    b"#datatype,string,long,dateTime:RFC3339,double\r\n#group,false,false,false,false\r\n"
    b"#default,_result,,,\r\n,result,table,_time,_value\r\n,,0,2026-01-01T00:00:00Z,1.5\r\n\r\n"
)


@pytest.fixture
def client_of():
    made = []

    def make(url):
        config = config_of("v2", url, timeout_s=5.0)
        made.append(InfluxClient(config, config.org, SystemClock()))
        return made[-1]

    yield make
    for client in made:
        client.close()


def test_write_sends_ready_bytes_with_token_and_encoding(client_of):
    body = gzip.compress(b"m v=1 1")
    with Scripted(lambda *_: (204, {}, b"")) as server:
        client = client_of(server.url)
        client.use_token("t0k3n")
        client.write("b", body, is_compressed=True)
        client.use_token("")
        client.write("b", b"m v=1 1", is_compressed=False)
    (_, path, headers, sent), (_, _, plain, _) = server.requests
    assert path == "/api/v2/write?org=o&bucket=b&precision=ns"
    assert sent == body
    assert headers["Content-Encoding"] == "gzip"
    assert headers["Authorization"] == "Token t0k3n"
    assert headers["User-Agent"].startswith("costprobe/")
    assert not {"Authorization", "Content-Encoding"} & set(plain)


def test_query_api_reads_a_response(client_of):
    with Scripted(lambda *_: (200, {"Content-Type": "text/csv"}, CSV)) as server:
        tables = client_of(server.url).library.query_api().query("buckets()")
    assert [record.get_value() for table in tables for record in table.records] == [1.5]


def test_refused_query_is_one_of_our_errors(client_of):
    answer = (401, {}, b'{"message": "unauthorized"}')
    with Scripted(lambda *_: answer) as server, pytest.raises(Misconfigured, match="unauthorized"):
        client_of(server.url).library.query_api().query("buckets()")
