"""Every rule of the architecture test, in the order in which it reports."""

from tests.architecture import budgets, classes, cuts, folders, imports, prose, sizes, terminal
from tests.architecture.source import Rule

RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        *(imports.imports_out_of_order, imports.two_way_pairs, imports.imports_of_fronts),
        imports.imports_of_pure_modules,
        *(imports.imports_of_the_sdk, imports.imports_of_concrete_parts, imports.imports_of_asyncio),
        *(imports.lazy_imports, classes.foreign_attributes),
        *(sizes.long_files, sizes.long_functions, classes.large_classes, sizes.large_packages),
        *(classes.effective_classes, classes.storing_setters, classes.positional_arguments),
        *(classes.repeated_class_names, prose.missing_docstrings, prose.package_docstrings, prose.package_maps),
        *(folders.folders_made_elsewhere, cuts.cut_texts, terminal.unescaped_output),
        *(prose.docstring_openings, prose.missing_pages, prose.english),
        *(budgets.dialect, budgets.modules, budgets.public_classes, budgets.unchecked_types, budgets.shared_stores),
    )
}
