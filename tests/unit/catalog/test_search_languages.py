"""Queries in other languages find what the same says in English."""

import pytest

from mcp_hub.catalog.search.languages import in_english
from tests.unit.catalog.search_tools import TOOLS, found, index

HUB = index(*TOOLS)

ASKED = {
    "github_create_issue": [
        "创建一个工单", "チケットを作成して", "이슈 만들어줘", "ein neues Ticket erstellen", "crea una incidencia",
        "crée un ticket", "cria um chamado", "apri un ticket: crea una segnalazione", "maak een ticket aan",
        "создай новый тикет", "utwórz zgłoszenie", "yeni talep oluştur",
    ],
    "files_readTextFile": [
        "读取文件", "ファイルを読んで", "파일을 읽어줘", "Datei lesen", "lee el archivo", "lis le fichier",
        "leia o arquivo", "leggi il file", "lees het bestand", "прочитай файл", "przeczytaj plik", "dosyayı oku",
    ],
    "browser_take_screenshot": [
        "截个图", "スクリーンショットを撮る", "스크린샷 찍어줘", "mach ein Bildschirmfoto",
        "haz una captura de pantalla", "fais une capture d’écran", "снимок экрана", "zrzut ekranu",
    ],
    "git_git_log": [
        "提交记录", "コミット履歴", "커밋 기록", "Commitverlauf zeigen", "historial de commits", "история коммитов",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("tool", "query"), [(tool, query) for tool, queries in ASKED.items() for query in queries])
def test_a_query_in_another_language_finds_the_tool(tool: str, query: str) -> None:
    assert tool in found(HUB, query, 3)


@pytest.mark.parametrize(
    ("query", "meaning"),
    [
        ("チケットを登録して", "create"),
        ("quantas visualizações", "views"),
        ("Aufrufe der Seite", "views"),
        ("浏览量", "views"),
    ],
)
def test_what_a_word_of_another_language_means(query: str, meaning: str) -> None:
    ((clause, _),) = in_english([query], {"creat", "add", "view", "page"})
    assert meaning in clause.split() and "add" not in clause.split()


def test_parts_of_a_compound_count() -> None:
    assert found(HUB, "Dateisuche")[0] == "files_searchFiles"


@pytest.mark.parametrize(
    "query",
    [
        "merge the pull request of Ana María", "a café near the station", "folder", "find the word 分支 in my files",
        "what is the schadenfreude", "remove a red wine stain", "naïve", "pull request für mich",
    ],
)  # fmt: skip
def test_an_english_query_stays_as_it_is(query: str) -> None:
    assert in_english([query], {"pull", "request"}) == [(query, ())]


def test_a_name_stays_and_counts_as_unknown() -> None:
    assert in_english(["schick Annegret eine Datei"], {"send", "fil"})[0][0] == "send annegret file"
    assert in_english(["删除独角兽"], {"delet"})[0][0] == "delete 独角"


def test_only_words_of_the_index_are_meant() -> None:
    assert in_english(["borra la carpeta"], {"remov", "directory"})[0] == (
        "delete directory",
        ("remove", "borra", "carpeta"),
    )


def test_values_of_a_query_in_another_language_stay() -> None:
    assert in_english(["关闭 #42 和 WEB-7"], {"clos"})[0][0] == "close #42 WEB-7"
    assert in_english(["cierra la incidencia 42"], {"clos", "issu"})[0][0] == "close issue 42"


@pytest.mark.parametrize("query", ["loesche die Datei", "lösche die Datei", "刪除檔案", "删除文件"])
def test_words_are_known_in_their_other_spelling(query: str) -> None:
    assert in_english([query], {"delet", "fil"})[0][0] == "delete file"
