"""Pages that hold everything they need in one file: those of `dcp explore`, `render` and `report`, and the ledger's.

The scripts are plain ES modules; `whole_page` puts a page's modules, style and data into its one file.
`vendor/` holds libraries from npm with their licences, and says how they were built.
"""
