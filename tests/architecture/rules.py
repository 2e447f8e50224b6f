"""Every rule of the architecture test, in the order in which it reports."""

from tests.architecture import cuts, folders, imports, prose, sizes, terminal
from tests.architecture.source import Rule

RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        *(imports.imports_out_of_order, imports.two_way_pairs, imports.imports_of_fronts),
        imports.imports_of_pure_modules,
        *(imports.imports_of_the_sdk, imports.imports_of_concrete_parts, imports.imports_of_asyncio),
        *(imports.lazy_imports, sizes.foreign_attributes),
        *(sizes.long_files, sizes.long_functions, sizes.large_classes, sizes.large_packages),
        *(sizes.repeated_class_names, prose.missing_docstrings, prose.package_docstrings),
        *(folders.folders_made_elsewhere, cuts.cut_texts, terminal.unescaped_output),
        *(prose.docstring_openings, prose.missing_pages, prose.english),
    )
}
